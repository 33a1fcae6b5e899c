/* `moeflux list`: the models in the Hugging Face cache. */
#include "command.h"
#include "json_lines.h"
#include "shown.h"
#include "terminal.h"

#include "common/error.h"
#include "hub/local.h"
#include "hub/settings.h"

struct list_settings {
    struct common_settings common;
    bool json;
};

static const struct option options[] = {
    { 0, "json", OPTION_FLAG, offsetof(struct list_settings, json), NULL,
      .help = "one JSON array instead of a table" },
};

static const struct option_group groups[] = { { "options", options, COUNT_OF(options), 0 } };

struct listed {
    const char *cache;
    json_t *json; /* NULL: a table */
    size_t count;
    mf_status status;
    mf_error why;
};

static void print_line(const char *name, const char *label, uint64_t bytes, const char *remark)
{
    char size[32];

    visible_printf(stdout, "%-48s %-14s %10s%s\n", name, label, size_text(bytes, size, sizeof size),
                   remark);
}

static void print_model(const struct hub_local *local, const struct hub_candidates *candidates)
{
    const char *name = local->repository;

    for (size_t i = 0; i < candidates->count; i++, name = "") {
        const struct hub_candidate *c = &candidates->items[i];
        const char *remark = hub_candidate_check(c, NULL) == MF_OK ? "" : "  parts are missing";
        print_line(name, c->label, c->bytes, c->runs ? remark : "  moeflux does not run it yet");
    }
    if (local->incomplete_count > 0)
        print_line(name, "incomplete", local->incomplete_bytes, "  `moeflux pull` goes on");
    else if (candidates->count == 0)
        print_line(name, "no weights", 0, "");
}

static json_t *model_json_new(const struct hub_local *local,
                              const struct hub_candidates *candidates)
{
    json_t *files = json_array();

    for (size_t i = 0; i < candidates->count; i++) {
        const struct hub_candidate *c = &candidates->items[i];
        json_array_append_new(
            files, json_pack("{s:s,s:I,s:I,s:b,s:b}", "quantisation", c->label, "bytes",
                             (json_int_t)c->bytes, "files", (json_int_t)c->file_count, "complete",
                             (int)(hub_candidate_check(c, NULL) == MF_OK), "runs", (int)c->runs));
    }
    return json_pack("{s:s,s:s,s:o,s:I}", "name", local->repository, "path", local->folder,
                     "models", files, "incomplete_bytes", (json_int_t)local->incomplete_bytes);
}

static bool take(void *user, const char *repository)
{
    struct listed *listed = user;
    struct hub_local local;
    struct hub_candidates candidates = { NULL, 0, 0 };

    listed->status = hub_local_read(&local, listed->cache, repository, &listed->why);
    if (listed->status != MF_OK) return false;
    listed->status = hub_local_candidates(&candidates, &local, &listed->why);
    bool empty = local.count == 0 && local.incomplete_count == 0; /* after `rm` of all it had */
    if (listed->status == MF_OK && !empty && listed->json)
        json_array_append_new(listed->json, model_json_new(&local, &candidates));
    else if (listed->status == MF_OK && !empty)
        print_model(&local, &candidates);
    listed->count += !empty;
    hub_candidates_free(&candidates);
    hub_local_free(&local);
    return listed->status == MF_OK;
}

static int run(const void *settings_, const struct arguments *arguments)
{
    const struct list_settings *settings = settings_;
    char cache[PATH_CAPACITY];
    mf_error why = { .text = "" };
    struct listed listed = { .cache = cache, .json = settings->json ? json_array() : NULL };
    mf_status status = hub_cache_directory(cache, &why);

    (void)arguments;
    if (status == MF_OK && cache[0]) status = hub_local_visit(cache, take, &listed, &why);
    if (status == MF_OK && listed.status != MF_OK) {
        status = listed.status;
        why = listed.why;
    }
    if (status == MF_OK && settings->json) json_print_line(listed.json);
    if (status == MF_OK && !settings->json && listed.count == 0) {
        note("there is no model in %s; `moeflux pull NAME` downloads one",
             cache[0] ? cache : "the Hugging Face cache");
    }
    json_decref(listed.json);
    return status == MF_OK ? EXIT_DONE : report(&why);
}

const struct command command_list = {
    .name = "list",
    .summary = "list the models in the Hugging Face cache",
    .groups = groups,
    .group_count = COUNT_OF(groups),
    .opens_no_model = true,
    .notes = "Every model with its quantisations and sizes, whichever tool has downloaded it.",
    .examples = "  moeflux list\n"
                "  HF_HOME=/mnt/models moeflux list --json\n",
    .settings_bytes = sizeof(struct list_settings),
    .run = run,
};
