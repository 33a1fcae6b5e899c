/* `moeflux rm`: removes a model from the Hugging Face cache. */
#include "command.h"
#include "shown.h"
#include "terminal.h"

#include "common/error.h"
#include "hub/link.h"
#include "hub/settings.h"

struct rm_settings {
    struct common_settings common;
};

static const struct option options[] = {
    { 'y', "yes", OPTION_FLAG, offsetof(struct rm_settings, common.yes), NULL,
      .help = "do not ask" },
};

static const struct option_group groups[] = { { "options", options, COUNT_OF(options), 0 } };

static bool is_named_before(const struct hub_removal *removal, size_t index)
{
    for (size_t i = 0; i < index; i++) {
        const struct hub_link_entry *other = &removal->links[i];
        if (other->goes && strcmp(other->file->path, removal->links[index].file->path) == 0)
            return true;
    }
    return false;
}

/* "a.gguf, b.gguf and 3 more" */
static void list_files(char *out, size_t capacity, const struct hub_removal *removal)
{
    enum { NAMED = 6 };
    size_t used = 0, count = 0;

    out[0] = '\0';
    for (size_t i = 0; i < removal->link_count; i++) {
        if (!removal->links[i].goes || is_named_before(removal, i) || count++ >= NAMED) continue;
        int length = snprintf(out + used, capacity - used, "%s%.100s", used ? ", " : "",
                              removal->links[i].file->path);
        used = min_size(used + (size_t)length, capacity - 1);
    }
    if (count > NAMED) snprintf(out + used, capacity - used, " and %zu more", count - NAMED);
    if (count == 0) snprintf(out, capacity, "no files of a model");
}

/* EXIT_DONE: a yes. */
static int ask(const struct hub_removal *removal, const char *name)
{
    struct terminal terminal;
    char size[32], files[700];
    mf_error why = { .text = "" };

    size_text(removal->bytes, size, sizeof size);
    list_files(files, sizeof files, removal);
    terminal_probe(&terminal);
    if (!terminal.in || !terminal.err) {
        note("this removes %s", files);
        fail(&why, MF_ERR_IO,
             "nothing was removed of %.200s (%s); `moeflux rm --yes %.200s` does it", name, size,
             name);
        return report(&why);
    }
    visible_printf(stderr, "moeflux: %s: %s\n", name, files);
    visible_printf(stderr, "Remove %s (%s) from the cache?", name, size);
    if (terminal_ask()) return EXIT_DONE;
    note("nothing was removed");
    return EXIT_FAILED;
}

static int run(const void *settings_, const struct arguments *arguments)
{
    const struct rm_settings *settings = settings_;
    const char *given = arguments->count ? arguments->values[0] : "";
    struct hub_name name;
    struct hub_local local = { .count = 0 };
    struct hub_removal removal = { .links = NULL };
    char cache[PATH_CAPACITY], size[32];
    mf_error why = { .text = "" };
    int code = EXIT_DONE;

    if (arguments->count == 0) return usage_error(&command_rm, "which model? ORG/NAME[:QUANT]");
    if (!hub_name_parse(&name, given)) {
        return usage_error(&command_rm, "\"%.128s\" is no name of a model: it is ORG/NAME[:QUANT]",
                           given);
    }
    mf_status status = hub_need_cache(cache, &why);
    if (status == MF_OK) status = hub_local_read(&local, cache, name.repository, &why);
    if (status == MF_OK) status = hub_removal_plan(&removal, &local, &name, &why);
    if (status == MF_OK && !settings->common.yes) code = ask(&removal, given);
    if (status == MF_OK && code == EXIT_DONE) status = hub_removal_run(&removal, cache, &why);
    if (status == MF_OK && code == EXIT_DONE) {
        visible_printf(stderr, "moeflux: %s is removed: %s are free\n", given,
                       size_text(removal.bytes, size, sizeof size));
    }
    hub_removal_free(&removal);
    hub_local_free(&local);
    return status == MF_OK ? code : report(&why);
}

const struct command command_rm = {
    .name = "rm",
    .summary = "remove a model from the Hugging Face cache",
    .arguments = "NAME[:QUANT]",
    .argument_limit = 1,
    .groups = groups,
    .group_count = COUNT_OF(groups),
    .opens_no_model = true,
    .notes =
        "With QUANT only its files go; files that another version of the model has, too, stay.\n"
        "It asks first; without a terminal it needs --yes.",
    .examples = "  moeflux rm Qwen/Qwen3-30B-A3B-GGUF:Q8_0\n"
                "  moeflux rm Qwen/Qwen3-30B-A3B-GGUF --yes\n",
    .settings_bytes = sizeof(struct rm_settings),
    .run = run,
};
