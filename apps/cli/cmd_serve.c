/* `moeflux serve`: the model behind the HTTP APIs that programs use already. */
#include "command.h"
#include "model_path.h"
#include "opened.h"
#include "pulling.h"
#include "terminal.h"

#include "common/basics.h"
#include "common/error.h"
#include "moeflux_tools.h"
#include "serve/confine.h"
#include "serve/serve.h"

#include <arpa/inet.h>
#include <errno.h>
#include <malloc.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>

enum { PORT_STANDARD = 8080, PARALLEL_STANDARD = 16, QUEUE_STANDARD = 64, GRACE_STANDARD = 30 };

struct serve_settings {
    struct common_settings common;
    const char *host, *key, *key_file, *state_directory;
    struct maybe_count port, parallel, queue, max_gap_ms, grace, state_limit, time_limit;
    bool insecure, any_host, strict, strict_model, log, log_prompts;
};

static const char *const caches[] = { "exact", "reuse", "off", NULL };

static const struct option options[] = {
    { 0, "host", OPTION_TEXT, offsetof(struct serve_settings, host), "ADDRESS",
      .help = "address to listen on; default 127.0.0.1, this machine alone; others need a key" },
    { 'p', "port", OPTION_COUNT, offsetof(struct serve_settings, port), "N",
      .help = "default 8080; 0: one that is free", .low = 0, .high = 65535 },
    { 0, "api-key", OPTION_TEXT, offsetof(struct serve_settings, key), "KEY",
      .help = "what clients must send; other users of the machine may see it in the list of "
              "processes, but not that of --api-key-file" },
    { 0, "api-key-file", OPTION_TEXT, offsetof(struct serve_settings, key_file), "FILE",
      .help = "the same from a file; it may have several, one in each line, whose requests do not "
              "see each other" },
    { 0, "insecure", OPTION_FLAG, offsetof(struct serve_settings, insecure), NULL,
      .help = "listen on an address other machines reach, without a key" },
    { 0, "any-host", OPTION_FLAG, offsetof(struct serve_settings, any_host), NULL,
      .help = "accept any Host header, as behind a proxy" },
    { 0, "parallel", OPTION_COUNT, offsetof(struct serve_settings, parallel), "N",
      .help = "requests that are answered at a time; default 16", .low = 1, .high = 64 },
    { 0, "queue", OPTION_COUNT, offsetof(struct serve_settings, queue), "N",
      .help = "requests that may wait besides, others get status 429; default 64", .low = 1,
      .high = 100000 },
    { 0, "max-gap", OPTION_COUNT, offsetof(struct serve_settings, max_gap_ms), "MS",
      .help = "most milliseconds between two tokens of an answer while prompts are read beside "
              "it; default 150",
      .low = 1, .high = 100000 },
    { 0, "cache", OPTION_CHOICE, offsetof(struct serve_settings, common.cache), "MODE",
      .help = "what a prompt may begin with: reuse (earlier prompts and answers), exact (prompts "
              "only, the same bits as without) or off; default reuse",
      .choices = caches },
    { 0, "cache-dir", OPTION_TEXT, offsetof(struct serve_settings, common.cache_directory), "DIR",
      .help = "keep it in this directory, too, for the next start; see `moeflux cache`" },
    { 0, "cache-disk", OPTION_SIZE, offsetof(struct serve_settings, common.cache_disk_bytes),
      "SIZE", .help = "what --cache-dir may take; default: 20G" },
    { 0, "state-dir", OPTION_TEXT, offsetof(struct serve_settings, state_directory), "DIR",
      .help = "where uploaded files and batches are kept, without it there are none; and the key "
              "of reasoning that clients carry" },
    { 0, "state-limit", OPTION_SIZE, offsetof(struct serve_settings, state_limit), "SIZE",
      .help = "what --state-dir may take; default: 1G" },
    { 0, "grace", OPTION_COUNT, offsetof(struct serve_settings, grace), "SECONDS",
      .help = "time for answers under way when the server is stopped; default 30", .low = 0,
      .high = 86400 },
    { 0, "time-limit", OPTION_COUNT, offsetof(struct serve_settings, time_limit), "SECONDS",
      .help = "end requests that take longer, from their arrival on; default: none", .low = 1,
      .high = 1e6 },
    { 0, "strict", OPTION_FLAG, offsetof(struct serve_settings, strict), NULL,
      .help = "refuse fields that have no effect instead of listing them in x-moeflux-ignored" },
    { 0, "strict-model", OPTION_FLAG, offsetof(struct serve_settings, strict_model), NULL,
      .help = "refuse other names of models than this one's" },
    { 0, "log", OPTION_FLAG, offsetof(struct serve_settings, log), NULL,
      .help = "write a line to stderr for each answer, without texts" },
    { 0, "log-prompts", OPTION_FLAG, offsetof(struct serve_settings, log_prompts), NULL,
      .help = "write prompts to stderr, for debugging" },
    { 'y', "yes", OPTION_FLAG, offsetof(struct serve_settings, common.yes), NULL,
      .help = "download the model if it is not here, without asking; see `moeflux pull`" },
};

static const struct option_group groups[] = {
    { "options", options, COUNT_OF(options), 0 },
};

/* ----------------------------------------------------------------- settings */

static bool is_loopback(const char *host)
{
    struct in6_addr six;
    struct in_addr four;

    if (strcmp(host, "localhost") == 0) return true;
    if (inet_pton(AF_INET, host, &four) == 1) return ntohl(four.s_addr) >> 24 == 127;
    return inet_pton(AF_INET6, host, &six) == 1 && IN6_IS_ADDR_LOOPBACK(&six);
}

enum { KEYS_MAX = 64 };

/* --api-key, or the lines of --api-key-file. */
struct keys {
    char *text;
    const char *list[KEYS_MAX];
    size_t count;
};

static mf_status read_key_file(struct keys *keys, const char *path, mf_error *why)
{
    size_t length;
    char *rest = NULL;
    mf_status status = input_read_new(&keys->text, &length, path, why);

    if (status != MF_OK) return status;
    for (char *line = strtok_r(keys->text, "\r\n", &rest); line;
         line = strtok_r(NULL, "\r\n", &rest)) {
        if (keys->count == KEYS_MAX)
            return fail(why, MF_ERR_FORMAT, "%.256s has more than %d keys", path, KEYS_MAX);
        keys->list[keys->count++] = line;
    }
    if (keys->count > 0) return MF_OK;
    return fail(why, MF_ERR_FORMAT, "%.256s has no key: one is expected in each line", path);
}

static mf_status fill_options(struct serve_options *out, const struct serve_settings *settings,
                              struct keys *keys, mf_error *why)
{
    mf_status status = MF_OK;

    *out = (struct serve_options){
        .host = settings->host ? settings->host : "127.0.0.1",
        .port = settings->port.given ? (uint16_t)settings->port.value : PORT_STANDARD,
        .keys = keys->list,
        .cache = settings->common.cache ? settings->common.cache : "reuse",
        .state_directory = settings->state_directory,
        .state_limit_bytes = settings->state_limit.given ? settings->state_limit.value : 1u << 30,
        .parallel =
            settings->parallel.given ? (uint32_t)settings->parallel.value : PARALLEL_STANDARD,
        .queue = settings->queue.given ? (uint32_t)settings->queue.value : QUEUE_STANDARD,
        .time_limit_seconds = (double)settings->time_limit.value,
        .max_gap_seconds = (double)settings->max_gap_ms.value / 1000,
        .strict = settings->strict,
        .strict_model = settings->strict_model,
        .any_host = settings->any_host,
        .log = settings->log,
        .log_prompts = settings->log_prompts,
    };
    if (settings->key) keys->list[keys->count++] = settings->key;
    if (settings->key_file) status = read_key_file(keys, settings->key_file, why);
    out->key_count = keys->count;
    if (status == MF_OK && settings->key && settings->key[0] == '\0') {
        report_as_usage();
        return fail(why, MF_ERR_ARGUMENT, "--api-key is empty: any client would have it");
    }
    if (status != MF_OK || keys->count > 0 || settings->insecure || is_loopback(out->host))
        return status;
    report_as_usage();
    return fail(why, MF_ERR_ARGUMENT,
                "other machines reach %.128s: give --api-key-file, or --insecure if all of them "
                "may use the model",
                out->host);
}

/* ------------------------------------------------------------------- memory */

/* All sequences together may take a fourth of the memory, and one of them a sixteenth unless the
 * caller chose its length; the rest is for experts. */
enum { SEQUENCES_SHARE = 4, CONTEXT_SHARE = 16, CONTEXT_MOST = 32768, CONTEXT_LEAST = 4096 };

static mf_status size_sequences(struct common_settings *common, const char *path, uint64_t parallel,
                                mf_error *why)
{
    mf_plan_options wanted = MF_PLAN_OPTIONS_INIT;
    mf_plan plan = MF_PLAN_INIT;
    uint64_t context = common->context.given ? common->context.value : CONTEXT_MOST, bytes;

    wanted.memory_bytes = common->memory_bytes.value;
    wanted.chunk_rows = (uint32_t)common->prompt_chunk.value;
    wanted.thread_count = (uint32_t)common->threads.value;
    wanted.kv_type = common->kv;
    mf_status status = mf_model_plan(&plan, path, &wanted, why);
    if (status != MF_OK) return status;
    uint64_t fixed = plan.sequence_bytes - plan.position_bytes * plan.context_length;
    while (!common->context.given && context > CONTEXT_LEAST &&
           fixed + plan.position_bytes * context > plan.memory_bytes / CONTEXT_SHARE)
        context /= 2;
    bytes = fixed + plan.position_bytes * context;
    uint64_t count = plan.memory_bytes / SEQUENCES_SHARE / (bytes ? bytes : 1);
    common->sequences = (uint32_t)max_size(1, min_size(count, parallel));
    common->context = (struct maybe_count){ true, context };
    return MF_OK;
}

/* ------------------------------------------------------------------- running */

/* Waits for SIGINT or SIGTERM; every thread of the program has them blocked. */
static void wait_for_signal(const sigset_t *ends)
{
    int number;

    while (sigwait(ends, &number) != 0) continue;
}

/* The second signal ends the program at once. */
static void unblock(const sigset_t *ends)
{
    pthread_sigmask(SIG_UNBLOCK, ends, NULL);
}

static void announce(const struct serve *serve, const struct serve_options *given)
{
    const char *address = http_server_address(serve->http);
    bool six = strchr(address, ':') != NULL;
    const char *open = six ? "[" : "", *close = six ? "]" : "";
    unsigned port = http_server_port(serve->http);

    printf("moeflux: %s at http://%s%s%s:%u  (curl http://%s%s%s:%u/v1/models%s)\n",
           mf_model_name(serve->model), open, address, close, port, open, address, close, port,
           given->key_count > 0 ? " -H 'Authorization: Bearer KEY'" : "");
    fflush(stdout);
}

static bool uses_device(const struct serve_settings *settings)
{
    return settings->common.backend && strcmp(settings->common.backend, "cuda") == 0;
}

/* The directory of a file. */
static char *directory_of(char *path)
{
    char *slash = strrchr(path, '/');

    if (!slash) return strcpy(path, ".");
    slash[slash == path ? 1 : 0] = '\0';
    return path;
}

/* Loads the backend's plugin and the driver, which later could not be read wherever they are. */
static mf_status begin_device(const struct serve_settings *settings, mf_error *why)
{
    mf_device_description device = MF_DEVICE_DESCRIPTION_INIT;

    if (!uses_device(settings)) return MF_OK;
    return mf_device_describe(&device, why);
}

/* Gives up what the server will not need; `path` is the model's. */
static mf_status give_up_rights(const struct serve_settings *settings, const char *path,
                                mf_error *why)
{
    const char *made[] = { settings->common.cache_directory, settings->state_directory };
    char around[PATH_CAPACITY], trace[PATH_CAPACITY] = "", done[64];
    struct confine_paths paths = { .readable = { path, around },
                                   .writable = { made[0], made[1] },
                                   .devices = uses_device(settings) ? "nvidia" : NULL };

    for (size_t i = 0; i < COUNT_OF(made); i++)
        if (made[i] && mkdir(made[i], 0700) != 0 && errno != EEXIST)
            return fail_errno(why, MF_ERR_IO, errno, "%.256s cannot be made", made[i]);
    /* A split checkpoint has files beside the one that was named. */
    snprintf(around, sizeof around, "%s", path);
    directory_of(around);
    if (settings->common.trace) {
        snprintf(trace, sizeof trace, "%s", settings->common.trace);
        paths.writable[2] = directory_of(trace);
    }
    mf_status status = confine(done, sizeof done, &paths, why);
    if (status == MF_OK && !strstr(done, "Landlock"))
        note("this kernel has no Landlock: only %s in force", done);
    return status;
}

static mf_status open_model(struct opened *out, const struct serve_settings *settings,
                            const char *path, const struct serve_options *given, mf_error *why)
{
    struct common_settings common = settings->common;
    mf_status status = size_sequences(&common, path, given->parallel, why);

    common.model = path; /* what a name means can no longer be looked up */
    common.cache = given->cache;
    common.profile = true; /* /metrics has times by stage */
    common.stretch = settings->common.context.given;
    return status == MF_OK ? opened_open_model(out, &common, why) : status;
}

static mf_status run_server(const struct serve_settings *settings,
                            const struct serve_options *given, mf_error *why)
{
    unsigned long long grace = settings->grace.given ? settings->grace.value : GRACE_STANDARD;
    char path[PATH_CAPACITY];
    struct opened opened = { 0 };
    struct serve *serve = NULL;
    sigset_t ends;
    mf_status status;

    sigemptyset(&ends);
    sigaddset(&ends, SIGINT);
    sigaddset(&ends, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &ends, NULL);
    status = model_path_resolve(path, settings->common.model, why);
    if (status == MF_OK) status = begin_device(settings, why);
    if (status == MF_OK) status = give_up_rights(settings, path, why);
    if (status == MF_OK) status = serve_open(&serve, given, why);
    if (status == MF_OK) status = open_model(&opened, settings, path, given, why);
    if (status == MF_OK) status = serve_begin(serve, opened.model, path, why);
    if (status == MF_OK) {
        announce(serve, given);
        wait_for_signal(&ends);
        unblock(&ends);
        note("stopping: answers under way have %llu s; a second signal ends them", grace);
    }
    serve_close(serve, status == MF_OK ? (double)grace : 0);
    opened_close(&opened);
    return status;
}

/* The prefix cache frees and takes pieces of many sizes for days.  From a mapping of its own each
 * goes back to the system; in the heap they left holes: 100 KiB more for each answer. */
static void keep_heap_small(void)
{
#ifdef __GLIBC__
    mallopt(M_ARENA_MAX, 2);
    mallopt(M_MMAP_THRESHOLD, 32 << 10);
    mallopt(M_MMAP_MAX, 1 << 20);
#endif
}

static int run(const void *settings_, const struct arguments *arguments)
{
    const struct serve_settings *settings = settings_;
    struct serve_options given;
    struct keys keys = { 0 };
    mf_error why = { .text = "" };

    keep_heap_small();
    (void)arguments;
    mf_status status = fill_options(&given, settings, &keys, &why);
    int code = status == MF_OK ? pulling_offer(&settings->common, settings->common.model, NULL)
                               : EXIT_DONE;
    if (code != EXIT_DONE) {
        free(keys.text);
        return code;
    }
    if (status == MF_OK) status = run_server(settings, &given, &why);
    free(keys.text);
    return status == MF_OK ? EXIT_DONE : report(&why);
}

const struct command command_serve = {
    .name = "serve",
    .summary = "answer requests over HTTP, with a page to chat and to watch the experts",
    .groups = groups,
    .group_count = COUNT_OF(groups),
    .notes =
        "Speaks the APIs of OpenAI (chat completions, completions, responses) and Anthropic\n"
        "(messages), with and without /v1: docs/server.md; GET /metrics is for Prometheus,\n"
        "GET /health for load balancers. Requests share steps, and what their prompts have in\n"
        "common is read once.",
    .examples = "  moeflux serve\n"
                "  moeflux serve -m Qwen/Qwen3-30B-A3B -c 32768 --memory 16G --cache-dir cache\n"
                "  curl http://127.0.0.1:8080/v1/chat/completions -H 'Content-Type: "
                "application/json' \\\n"
                "    -d '{\"messages\":[{\"role\":\"user\",\"content\":\"Hello\"}]}'\n",
    .settings_bytes = sizeof(struct serve_settings),
    .run = run,
};
