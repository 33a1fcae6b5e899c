/* `moeflux connect`: tells a coding agent where a running server is. */
#include "command.h"
#include "connect.h"
#include "terminal.h"

#include "common/basics.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

struct connect_settings {
    const char *url, *key_file;
    bool write, yes;
};

static const struct option options[] = {
    { 0, "url", OPTION_TEXT, offsetof(struct connect_settings, url), "URL",
      .help = "where the server is; default http://127.0.0.1:8080" },
    { 0, "api-key-file", OPTION_TEXT, offsetof(struct connect_settings, key_file), "FILE",
      .help = "its key, the first line of a file" },
    { 0, "write", OPTION_FLAG, offsetof(struct connect_settings, write), NULL,
      .help = "put it into the client's own file, after a question; what else is there stays" },
    { 0, "yes", OPTION_FLAG, offsetof(struct connect_settings, yes), NULL,
      .help = "with --write: do not ask" },
};

static const struct option_group groups[] = { { "options", options, COUNT_OF(options), 0 } };

/* -------------------------------------------------------------------- settings */

static void drop_end(char *url, const char *end)
{
    size_t length = strlen(url), most = strlen(end);

    if (length > most && strcmp(url + length - most, end) == 0) url[length - most] = '\0';
}

static mf_status fill_target(struct connect_target *out, const struct connect_settings *settings,
                             mf_error *why)
{
    const char *url = settings->url ? settings->url : "http://127.0.0.1:8080";
    mf_status status = MF_OK;
    size_t length;
    char *text;

    *out = (struct connect_target){ .key = "" };
    snprintf(out->url, sizeof out->url, "%s", url);
    drop_end(out->url, "/");
    drop_end(out->url, "/v1");
    drop_end(out->url, "/");
    if (out->url[strcspn(out->url, " \"\\\r\n")])
        return fail(why, MF_ERR_ARGUMENT, "\"%.200s\" is not the address of a server", url);
    if (!settings->key_file) return MF_OK;
    status = input_read_new(&text, &length, settings->key_file, why);
    if (status != MF_OK) return status;
    text[strcspn(text, "\r\n")] = '\0';
    if (!*text || strlen(text) >= sizeof out->key || text[strcspn(text, " \"\\")])
        status =
            fail(why, MF_ERR_FORMAT, "%.256s has no key in its first line", settings->key_file);
    else
        snprintf(out->key, sizeof out->key, "%s", text);
    free(text);
    return status;
}

/* The client's file, and its directory, which may be absent. */
static mf_status find_file(char *path, size_t capacity, const struct connect_client *client,
                           mf_error *why)
{
    const char *own = client->directory_variable ? getenv(client->directory_variable) : NULL;
    const char *home = getenv("HOME");
    char whole[PATH_MAX];
    int length;

    if (own && *own)
        length = snprintf(path, capacity, "%s/%s", own, client->file);
    else if (home && *home)
        length = snprintf(path, capacity, "%s/%s/%s", home, client->directory, client->file);
    else
        return fail(why, MF_ERR_ARGUMENT, "HOME is not set, so there is no place for %s",
                    client->file);
    if (length >= (int)capacity) return fail(why, MF_ERR_ARGUMENT, "HOME is too long");
    /* A link is followed, so that the file behind it is replaced and the link stays. */
    if (realpath(path, whole) && strlen(whole) < capacity) memcpy(path, whole, strlen(whole) + 1);
    return MF_OK;
}

/* --------------------------------------------------------------------- writing */

static mf_status make_directories(const char *path, mf_error *why)
{
    char part[PATH_MAX];

    for (const char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        snprintf(part, sizeof part, "%.*s", (int)(slash - path), path);
        if (mkdir(part, 0700) != 0 && errno != EEXIST)
            return fail_errno(why, MF_ERR_IO, errno, "%.256s cannot be made", part);
    }
    return MF_OK;
}

/* The file may hold a key: only its owner reads a new one, an old one keeps its mode. */
static mf_status replace(const char *path, const struct byte_list *text, mf_error *why)
{
    struct output_file file;
    struct stat info;
    bool old = stat(path, &info) == 0;
    mf_status status = make_directories(path, why);

    if (status != MF_OK) return status;
    mode_t mask = umask(077);
    status = output_file_open(&file, path, why);
    umask(mask);
    if (status != MF_OK) return status;
    if (old) fchmod(fileno(file.stream), info.st_mode & 07777);
    fwrite(text->bytes, 1, text->count, file.stream);
    return output_file_commit(&file, why);
}

static bool confirmed(const char *path)
{
    char answer[16] = "";

    fprintf(stderr, "write this to %s? [y/N] ", path);
    fflush(stderr);
    return fgets(answer, sizeof answer, stdin) && (answer[0] == 'y' || answer[0] == 'Y');
}

static mf_status join_file(const struct connect_client *client, const struct connect_target *target,
                           const struct connect_settings *settings, const char *path, mf_error *why)
{
    struct byte_list joined = { 0 };
    char *old = NULL;
    size_t length;
    mf_status status = MF_OK;

    if (access(path, F_OK) == 0) status = input_read_new(&old, &length, path, why);
    if (status == MF_OK) status = connect_join(&joined, client, target, old ? old : "", path, why);
    if (status == MF_OK && (settings->yes || confirmed(path))) {
        status = replace(path, &joined, why);
        if (status == MF_OK) note("%s is written", path);
    }
    byte_list_free(&joined);
    free(old);
    return status;
}

/* ------------------------------------------------------------------------- run */

static void hint(const struct connect_client *client, const struct connect_target *target,
                 const struct connect_settings *settings)
{
    if (target->context < client->first_tokens)
        note("this server has %u positions, but the first prompt of %s alone takes about %u "
             "tokens: start it with -c %u or more",
             target->context, client->name, client->first_tokens, 32768u);
    if (client->key_in_environment && target->key[0])
        note("then: MOEFLUX_API_KEY=\"$(head -n 1 %s)\" %s", settings->key_file, client->start);
    else
        note("then: %s", client->start);
}

static mf_status connect_client(const struct connect_client *client,
                                const struct connect_settings *settings, mf_error *why)
{
    struct connect_target target;
    struct byte_list text = { 0 };
    char path[PATH_MAX];
    mf_status status = fill_target(&target, settings, why);

    if (status == MF_OK) status = connect_ask(&target, why);
    if (status == MF_OK) status = find_file(path, sizeof path, client, why);
    if (status != MF_OK) return status;
    client->write(&text, &target);
    output_write(text.bytes, text.count);
    byte_list_free(&text);
    fflush(stdout);
    if (settings->write)
        status = join_file(client, &target, settings, path, why);
    else
        note("this belongs into %s; --write puts it there", path);
    if (status == MF_OK) hint(client, &target, settings);
    return status;
}

static int run(const void *settings_, const struct arguments *arguments)
{
    const struct connect_settings *settings = settings_;
    const char *name = arguments->count > 0 ? arguments->values[0] : "";
    const struct connect_client *client = connect_find(name);
    struct terminal terminal;
    mf_error why = { .text = "" };

    if (!client)
        return usage_error(&command_connect, "\"%s\" is none of claude, codex, opencode and qwen",
                           name);
    terminal_probe(&terminal);
    if (settings->yes && !settings->write)
        return usage_error(&command_connect, "--yes is for --write");
    if (settings->write && !settings->yes && !terminal.in)
        return usage_error(&command_connect,
                           "--write asks before it writes, and there is no terminal: give --yes");
    mf_status status = connect_client(client, settings, &why);
    return status == MF_OK ? EXIT_DONE : report(&why);
}

const struct command command_connect = {
    .name = "connect",
    .summary = "configure a coding agent for a running server",
    .arguments = "claude|codex|opencode|qwen",
    .argument_limit = 1,
    .groups = groups,
    .group_count = COUNT_OF(groups),
    .opens_no_model = true,
    .notes = "Asks the server for the name of its model and the length of its context, and prints\n"
             "what the client must be told. With --write that is joined to the client's own file:\n"
             "members of a JSON file are replaced one by one, other files get a block between two\n"
             "marks, which a later run replaces. The file appears at once or not at all.",
    .examples = "  moeflux connect codex\n"
                "  moeflux connect claude --url http://127.0.0.1:9000 --api-key-file key --write\n",
    .settings_bytes = sizeof(struct connect_settings),
    .run = run,
};
