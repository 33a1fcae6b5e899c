/* `moeflux show`: the files of a model in the Hugging Face cache. */
#include "command.h"
#include "json_lines.h"
#include "pulling.h"
#include "shown.h"
#include "terminal.h"

#include "common/error.h"
#include "hub/local.h"
#include "hub/settings.h"

struct show_settings {
    struct common_settings common;
    bool json, hub;
};

static const struct option options[] = {
    { 0, "hub", OPTION_FLAG, offsetof(struct show_settings, hub), NULL,
      .help = "what the hub has, and which of it is here, instead" },
    { 0, "json", OPTION_FLAG, offsetof(struct show_settings, json), NULL,
      .help = "one JSON object instead of a table" },
};

static const struct option_group groups[] = { { "options", options, COUNT_OF(options), 0 } };

static void print_table(const struct hub_local *local)
{
    const struct hub_listing *files = hub_local_main(local);
    char size[32];
    uint64_t sum = 0;

    visible_printf(stdout, "model       %s\n", local->repository);
    if (files) {
        visible_printf(stdout, "snapshot    %s/snapshots/%s\n", local->folder,
                       local->snapshots[local->main].commit);
    }
    for (size_t i = 0; files && i < files->count; i++) {
        visible_printf(stdout, "  %10s  %s\n", size_text(files->files[i].size, size, sizeof size),
                       files->files[i].path);
        sum += files->files[i].size;
    }
    if (files) {
        printf("files       %zu, %s\n", files->count, size_text(sum, size, sizeof size));
    }
    if (local->count > 1) printf("snapshots   %zu, of earlier versions, too\n", local->count);
    if (local->incomplete_count > 0) {
        printf("incomplete  %s; `moeflux pull` goes on\n",
               size_text(local->incomplete_bytes, size, sizeof size));
    }
}

static void print_json(const struct hub_local *local)
{
    const struct hub_listing *listing = hub_local_main(local);
    json_t *files = json_array();

    for (size_t i = 0; listing && i < listing->count; i++) {
        const struct hub_file *file = &listing->files[i];
        json_array_append_new(files, json_pack("{s:s,s:I,s:s}", "path", file->path, "bytes",
                                               (json_int_t)file->size, "hash", file->hash));
    }
    json_t *out = json_pack("{s:s,s:s,s:o,s:I,s:I}", "name", local->repository, "path",
                            local->folder, "files", files, "snapshots", (json_int_t)local->count,
                            "incomplete_bytes", (json_int_t)local->incomplete_bytes);
    if (listing) {
        json_object_set_new(out, "commit", json_string(local->snapshots[local->main].commit));
    }
    json_print_line(out);
    json_decref(out);
}

static int show(const struct hub_name *name, bool json)
{
    char cache[PATH_CAPACITY];
    struct hub_local local = { .count = 0 };
    mf_error why = { .text = "" };
    mf_status status = hub_need_cache(cache, &why);

    if (status == MF_OK) status = hub_local_read(&local, cache, name->repository, &why);
    if (status == MF_OK && local.count == 0 && local.incomplete_count == 0) {
        status = fail(&why, MF_ERR_IO,
                      "%.128s is not in the cache; `moeflux show %.128s --hub` shows what the hub "
                      "has",
                      name->repository, name->repository);
    }
    if (status == MF_OK && json) print_json(&local);
    if (status == MF_OK && !json) print_table(&local);
    hub_local_free(&local);
    return status == MF_OK ? EXIT_DONE : report(&why);
}

static int run(const void *settings_, const struct arguments *arguments)
{
    const struct show_settings *settings = settings_;
    struct hub_name name;
    char path[PATH_CAPACITY];

    if (arguments->count == 0) return usage_error(&command_show, "which model? ORG/NAME");
    if (!hub_name_parse(&name, arguments->values[0])) {
        return usage_error(&command_show, "\"%.128s\" is no name of a model: it is ORG/NAME",
                           arguments->values[0]);
    }
    if (settings->hub && settings->json) {
        return usage_error(&command_show, "--hub and --json exclude each other");
    }
    if (!settings->hub) return show(&name, settings->json);
    return pulling_run(&(struct pulling){ .name = arguments->values[0], .list = true }, path);
}

const struct command command_show = {
    .name = "show",
    .summary = "show the files of a model in the Hugging Face cache",
    .arguments = "NAME",
    .argument_limit = 1,
    .groups = groups,
    .group_count = COUNT_OF(groups),
    .opens_no_model = true,
    .notes = "`moeflux inspect NAME` describes the model itself.",
    .examples = "  moeflux show Qwen/Qwen3-30B-A3B-GGUF\n"
                "  moeflux show Qwen/Qwen3-30B-A3B-GGUF --hub\n",
    .settings_bytes = sizeof(struct show_settings),
    .run = run,
};
