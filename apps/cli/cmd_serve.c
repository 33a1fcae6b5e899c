/* `moeflux serve`: the model behind the HTTP APIs that programs use already. */
#include "command.h"
#include "generation.h"
#include "opened.h"
#include "terminal.h"

#include "common/basics.h"
#include "common/error.h"
#include "serve/serve.h"

#include <arpa/inet.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>

enum { PORT_STANDARD = 8080, PARALLEL_STANDARD = 16, QUEUE_STANDARD = 64, GRACE_STANDARD = 30 };

struct serve_settings {
    struct common_settings common;
    const char *host, *key, *key_file, *state_directory;
    struct maybe_count port, parallel, queue, max_gap_ms, grace, state_limit;
    bool insecure, any_host, strict, strict_model, log_prompts;
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
      .help = "the same, the first line of a file" },
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
      .help = "where uploaded files and batches are kept; without it there are none" },
    { 0, "state-limit", OPTION_SIZE, offsetof(struct serve_settings, state_limit), "SIZE",
      .help = "what --state-dir may take; default: 1G" },
    { 0, "grace", OPTION_COUNT, offsetof(struct serve_settings, grace), "SECONDS",
      .help = "time for answers under way when the server is stopped; default 30", .low = 0,
      .high = 86400 },
    { 0, "strict", OPTION_FLAG, offsetof(struct serve_settings, strict), NULL,
      .help = "refuse fields that have no effect instead of listing them in x-moeflux-ignored" },
    { 0, "strict-model", OPTION_FLAG, offsetof(struct serve_settings, strict_model), NULL,
      .help = "refuse other names of models than this one's" },
    { 0, "log-prompts", OPTION_FLAG, offsetof(struct serve_settings, log_prompts), NULL,
      .help = "write prompts to stderr, for debugging" },
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

/* The first line of a file; *out is freed with free(). */
static mf_status read_key(char **out, const char *path, mf_error *why)
{
    size_t length;
    mf_status status = input_read_new(out, &length, path, why);

    if (status != MF_OK) return status;
    (*out)[strcspn(*out, "\r\n")] = '\0';
    if (**out) return MF_OK;
    return fail(why, MF_ERR_FORMAT, "%.256s has no key in its first line", path);
}

static mf_status fill_options(struct serve_options *out, const struct serve_settings *settings,
                              char **key, mf_error *why)
{
    mf_status status = MF_OK;

    *out = (struct serve_options){
        .host = settings->host ? settings->host : "127.0.0.1",
        .port = settings->port.given ? (uint16_t)settings->port.value : PORT_STANDARD,
        .key = settings->key,
        .cache = settings->common.cache ? settings->common.cache : "reuse",
        .state_directory = settings->state_directory,
        .state_limit_bytes = settings->state_limit.given ? settings->state_limit.value : 1u << 30,
        .parallel =
            settings->parallel.given ? (uint32_t)settings->parallel.value : PARALLEL_STANDARD,
        .queue = settings->queue.given ? (uint32_t)settings->queue.value : QUEUE_STANDARD,
        .max_gap_seconds = (double)settings->max_gap_ms.value / 1000,
        .strict = settings->strict,
        .strict_model = settings->strict_model,
        .any_host = settings->any_host,
        .log_prompts = settings->log_prompts,
    };
    if (settings->key_file) status = read_key(key, settings->key_file, why);
    if (*key) out->key = *key;
    if (status != MF_OK || out->key || settings->insecure || is_loopback(out->host)) return status;
    report_as_usage();
    return fail(why, MF_ERR_ARGUMENT,
                "other machines reach %.128s: give --api-key-file, or --insecure if all of them "
                "may use the model",
                out->host);
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
           given->key ? " -H 'Authorization: Bearer KEY'" : "");
    fflush(stdout);
}

static mf_status run_server(const struct serve_settings *settings,
                            const struct serve_options *given, mf_error *why)
{
    struct common_settings common = settings->common;
    struct opened opened = { 0 };
    struct serve *serve = NULL;
    sigset_t ends;
    mf_status status;

    sigemptyset(&ends);
    sigaddset(&ends, SIGINT);
    sigaddset(&ends, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &ends, NULL);
    common.cache = given->cache;
    common.sequences = given->parallel;
    status = opened_open_model(&opened, &common, why);
    if (status == MF_OK) status = serve_open(&serve, given, opened.model, why);
    if (status == MF_OK) {
        prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        announce(serve, given);
        wait_for_signal(&ends);
        unblock(&ends);
        note("stopping: answers under way have %llu s; a second signal ends them",
             (unsigned long long)(settings->grace.given ? settings->grace.value : GRACE_STANDARD));
    }
    serve_close(serve, settings->grace.given ? (double)settings->grace.value : GRACE_STANDARD);
    opened_close(&opened);
    return status;
}

static int run(const void *settings_, const struct arguments *arguments)
{
    const struct serve_settings *settings = settings_;
    struct serve_options given;
    mf_error why = { .text = "" };
    char *key = NULL;

    (void)arguments;
    mf_status status = fill_options(&given, settings, &key, &why);
    if (status == MF_OK) status = run_server(settings, &given, &why);
    free(key);
    return status == MF_OK ? EXIT_DONE : report(&why);
}

const struct command command_serve = {
    .name = "serve",
    .summary = "answer requests over HTTP, with a page to chat and to watch the experts",
    .groups = groups,
    .group_count = COUNT_OF(groups),
    .notes =
        "Speaks the APIs of OpenAI (chat completions), with and without /v1; GET /metrics is\n"
        "for Prometheus, GET /health for load balancers. Requests share steps, and what their\n"
        "prompts have in common is read once.",
    .examples = "  moeflux serve\n"
                "  moeflux serve -m Qwen/Qwen3-30B-A3B -c 32768 --memory 16G --cache-dir cache\n"
                "  curl http://127.0.0.1:8080/v1/chat/completions -H 'Content-Type: "
                "application/json' \\\n"
                "    -d '{\"messages\":[{\"role\":\"user\",\"content\":\"Hello\"}]}'\n",
    .settings_bytes = sizeof(struct serve_settings),
    .run = run,
};
