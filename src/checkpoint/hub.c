#include "checkpoint/hub.h"

#include "base/status.h"
#include "checkpoint/locate.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

/* -------------------------------------------------------------------- names */

static const char name_letters[] =
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";

/* Exactly one '/', and names that the hub allows. */
static bool is_repository_name(const char *name)
{
    const char *slash = strchr(name, '/');
    if (!slash || slash == name || slash[1] == '\0' || name[0] == '.') return false;
    if (strspn(name, name_letters) != (size_t)(slash - name)) return false;
    return slash[1] != '.' && strspn(slash + 1, name_letters) == strlen(slash + 1);
}

/* What follows the hub's address in `name`, or NULL. */
static const char *after_address(const char *name)
{
    static const char *const schemes[] = { "https://", "http://", "" };
    static const char *const hosts[] = { "huggingface.co/", "hf.co/" };
    for (size_t s = 0; s < COUNT_OF(schemes); s++) {
        size_t scheme = strlen(schemes[s]);
        if (strncmp(name, schemes[s], scheme) != 0) continue;
        for (size_t h = 0; h < COUNT_OF(hosts); h++)
            if (strncmp(name + scheme, hosts[h], strlen(hosts[h])) == 0)
                return name + scheme + strlen(hosts[h]);
    }
    return NULL;
}

/* "qwen3:30b" */
static bool is_tagged_name(const char *name)
{
    const char *colon = strchr(name, ':');
    return colon && colon > name && colon[1] && !strchr(name, ' ') && !strstr(name, "://");
}

static mf_status refuse_absent(const char *name, mf_error *why)
{
    const char *address = after_address(name);
    if (address) {
        const char *slash = strchr(address, '/');
        size_t length = slash ? (size_t)(slash - address) + 1 + strcspn(slash + 1, "/:?#") : 0;
        return fail(
            why, MF_ERR_IO,
            "%.128s is an address, and nothing is downloaded here: `moeflux pull %.*s` puts "
            "it into the Hugging Face cache, where it is called %.*s",
            name, (int)min_size(length, 128), address, (int)min_size(length, 128), address);
    }
    if (strstr(name, "://"))
        return fail(why, MF_ERR_IO,
                    "%.128s is an address, and nothing is downloaded here: download it, then give "
                    "the path of the file or directory",
                    name);
    if (is_tagged_name(name))
        return fail(why, MF_ERR_IO,
                    "%.128s is a name in ollama's library, and nothing is downloaded here: "
                    "`ollama show --modelfile %.128s` names the file of a model that ollama has "
                    "pulled, which can be given instead",
                    name, name);
    return fail(why, MF_ERR_IO,
                "%.128s does not exist; a model is a directory, a GGUF file, or org/name in the "
                "Hugging Face cache",
                name);
}

/* -------------------------------------------------------------------- cache */

struct only_entry {
    char name[256];
    size_t count;
};

static void take_entry(void *context, const char *name)
{
    struct only_entry *only = context;
    if (name[0] == '.') return;
    if (only->count++ == 0) snprintf(only->name, sizeof only->name, "%s", name);
}

/* The commit that refs/main names; a cache filled by hand may lack it and have one snapshot. */
static void main_commit(char out[256], const mf_files *files, const char *repository)
{
    char path[PATH_CAPACITY], *text = NULL;
    size_t length;
    struct only_entry only = { "", 0 };
    out[0] = '\0';
    if (path_join(path, sizeof path, repository, "refs/main", NULL) == MF_OK &&
        file_read_whole_new(&text, &length, files, path, 256, NULL) == MF_OK) {
        text[strcspn(text, " \r\n")] = '\0';
        if (path_is_base_name(text) && strlen(text) < 256) snprintf(out, 256, "%s", text);
        free(text);
    }
    if (out[0] || path_join(path, sizeof path, repository, "snapshots", NULL) != MF_OK) return;
    if (files->list(files->user, path, take_entry, &only) == 0 && only.count == 1)
        snprintf(out, 256, "%s", only.name);
}

static mf_status find_in_cache(char out[PATH_CAPACITY], const mf_files *files, const char *name,
                               const char *cache, mf_error *why)
{
    char folder[512], repository[PATH_CAPACITY], snapshots[PATH_CAPACITY], commit[256];
    const char *slash = strchr(name, '/');
    if (strlen(name) > sizeof folder - 16)
        return fail(why, MF_ERR_ARGUMENT, "%.64s… is too long a name", name);
    snprintf(folder, sizeof folder, "models--%.*s--%s", (int)(slash - name), name, slash + 1);
    mf_status status = path_join(repository, sizeof repository, cache, folder, why);
    if (status == MF_OK)
        status = path_join(snapshots, sizeof snapshots, repository, "snapshots", why);
    if (status != MF_OK) return status;
    if (!checkpoint_is_directory(files, repository))
        return fail(why, MF_ERR_IO,
                    "%.128s is neither a directory nor in the Hugging Face cache %.256s; "
                    "`moeflux pull %.128s` puts it there",
                    name, cache, name);
    main_commit(commit, files, repository);
    if (commit[0] && path_join(out, PATH_CAPACITY, snapshots, commit, NULL) == MF_OK &&
        checkpoint_is_directory(files, out))
        return MF_OK;
    return fail(why, MF_ERR_IO,
                "%.128s is in the Hugging Face cache, but without a main snapshot; "
                "`moeflux pull %.128s` completes it",
                name, name);
}

/* -------------------------------------------------------------------- whole */

mf_status hub_find(char *out, const mf_files *files, const char *name, const char *cache,
                   mf_error *why)
{
    struct checkpoint_place place;
    bool present = false;
    if (*name == '\0') return fail(why, MF_ERR_ARGUMENT, "the model's name is empty");
    if (strlen(name) >= PATH_CAPACITY)
        return fail(why, MF_ERR_ARGUMENT, "the model's path is too long");
    /* Anything but absence is for checkpoint_locate to judge. */
    present = file_probe(&present, files, name, NULL) != MF_OK || present ||
              checkpoint_is_directory(files, name);
    mf_status status = MF_OK;
    if (!present && !is_repository_name(name)) return refuse_absent(name, why);
    if (!present && !cache)
        return fail(why, MF_ERR_IO, "%.128s is not a directory, and no Hugging Face cache is known",
                    name);
    if (present)
        memcpy(out, name, strlen(name) + 1);
    else
        status = find_in_cache(out, files, name, cache, why);
    if (status != MF_OK) return status;
    /* A directory without weights may still have a tokenizer: opening it says what is missing. */
    bool directory = checkpoint_is_directory(files, out);
    status = checkpoint_locate(&place, files, out, directory ? NULL : why);
    if (status == MF_OK) memcpy(out, place.path, sizeof place.path);
    return directory ? MF_OK : status;
}

/* The part of the path before `end`, which is behind its last character. */
static const char *last_part(const char *path, const char *end)
{
    while (end > path && end[-1] != '/') end--;
    return end;
}

const char *hub_name_in(size_t *length, const char *path)
{
    static const char middle[] = "snapshots/", prefix[] = "models--", separator[] = "--";
    const char *commit = last_part(path, path + strlen(path));
    if (!*commit || commit < path + sizeof middle) return NULL;
    const char *snapshots = commit - (sizeof middle - 1);
    if (memcmp(snapshots, middle, sizeof middle - 1) != 0) return NULL;
    const char *folder = last_part(path, snapshots - 1), *end = snapshots - 1;
    if (strncmp(folder, prefix, sizeof prefix - 1) != 0) return NULL;
    const char *name = strstr(folder + sizeof prefix - 1, separator);
    if (!name || name + sizeof separator - 1 >= end) return NULL;
    name += sizeof separator - 1;
    *length = (size_t)(end - name);
    return name;
}
