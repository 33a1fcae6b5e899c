/* `moeflux cache`: what a directory of --cache-dir holds; checks it and makes it smaller. */
#include "cache_texts.h"
#include "command.h"
#include "json_lines.h"
#include "terminal.h"

#include "common/basics.h"

struct cache_settings {
    bool json;
    struct maybe_count disk;
};

static const struct option options[] = {
    { 0, "disk", OPTION_SIZE, offsetof(struct cache_settings, disk), "SIZE",
      .help = "gc: remove the least valuable files until all take at most SIZE, as in 20G" },
    { 0, "json", OPTION_FLAG, offsetof(struct cache_settings, json), NULL,
      .help = "one JSON object instead of a table" },
};

static const struct option_group groups[] = { { "options", options, COUNT_OF(options), 0 } };

/* ------------------------------------------------------------------ summaries */

static json_t *summary_json_new(const mf_cache_summary *sum)
{
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "bytes", (json_int_t)sum->bytes,
                     "pages", (json_int_t)sum->pages, "checkpoints", (json_int_t)sum->checkpoints,
                     "strangers", (json_int_t)sum->strangers, "missing", (json_int_t)sum->missing,
                     "damaged", (json_int_t)sum->damaged, "evicted", (json_int_t)sum->evicted,
                     "bytes_before", (json_int_t)sum->bytes_before);
}

/* `texts` may be NULL. */
static void print_json(const mf_cache_summary *sum, const struct cache_texts *texts)
{
    json_t *object = summary_json_new(sum);

    if (texts) json_object_set_new(object, "files", cache_texts_json_new(texts));
    json_print_line(object);
    json_decref(object);
}

static void print_total(const mf_cache_summary *sum)
{
    char size[32];

    printf("%llu pages and %llu checkpoints in %s\n", (unsigned long long)sum->pages,
           (unsigned long long)sum->checkpoints, size_text(sum->bytes, size, sizeof size));
}

static bool is_sound(const mf_cache_summary *sum)
{
    return sum->damaged == 0 && sum->missing == 0 && sum->strangers == 0;
}

/* ------------------------------------------------------------------- actions */

static mf_status list(const char *directory, const struct cache_settings *settings, bool *sound,
                      mf_error *why)
{
    struct cache_texts texts = { 0 };
    mf_cache_summary sum = MF_CACHE_SUMMARY_INIT;
    mf_status status = mf_cache_list(&sum, directory, cache_texts_add, &texts, why);

    if (status == MF_OK && texts.failed) status = fail_memory(why, texts.count);
    if (status == MF_OK && settings->json) {
        print_json(&sum, &texts);
    } else if (status == MF_OK && cache_texts_print(&texts)) {
        print_total(&sum);
    } else if (status == MF_OK) {
        status = fail_memory(why, texts.count);
    }
    *sound = true; /* it was not asked */
    cache_texts_free(&texts);
    return status;
}

static mf_status verify(const char *directory, const struct cache_settings *settings, bool *sound,
                        mf_error *why)
{
    struct cache_texts texts = { 0 };
    mf_cache_summary sum = MF_CACHE_SUMMARY_INIT;
    mf_status status = mf_cache_verify(&sum, directory, cache_texts_add, &texts, why);

    if (status == MF_OK && texts.failed) status = fail_memory(why, texts.count);
    if (status == MF_OK && settings->json) {
        print_json(&sum, &texts);
    } else if (status == MF_OK) {
        cache_texts_print_problems(&texts);
        if (sum.strangers) {
            printf("%llu files that no record names\n", (unsigned long long)sum.strangers);
        }
        print_total(&sum);
        printf("%s\n", is_sound(&sum) ? "all of it is sound"
                                      : "`moeflux cache gc` removes what is not sound");
    }
    *sound = is_sound(&sum);
    cache_texts_free(&texts);
    return status;
}

static mf_status collect(const char *directory, const struct cache_settings *settings, bool *sound,
                         mf_error *why)
{
    mf_cache_summary sum = MF_CACHE_SUMMARY_INIT;
    mf_status status = mf_cache_collect(&sum, directory, settings->disk.value, why);
    char before[32];

    *sound = true; /* now */
    if (status != MF_OK) return status;
    if (settings->json) {
        print_json(&sum, NULL);
        return MF_OK;
    }
    print_total(&sum);
    printf("before: %s; removed: %llu damaged, %llu without a file, %llu not known, %llu for the "
           "limit\n",
           size_text(sum.bytes_before, before, sizeof before), (unsigned long long)sum.damaged,
           (unsigned long long)sum.missing, (unsigned long long)sum.strangers,
           (unsigned long long)sum.evicted);
    return MF_OK;
}

static const struct {
    const char *name;
    mf_status (*run)(const char *directory, const struct cache_settings *settings, bool *sound,
                     mf_error *why);
} actions[] = { { "ls", list }, { "verify", verify }, { "gc", collect } };

static int run(const void *settings_, const struct arguments *arguments)
{
    const struct cache_settings *settings = settings_;
    mf_error why = { .text = "" };
    bool sound = true;

    if (arguments->count < 2) {
        return usage_error(&command_cache, "ls, verify or gc, and a directory are wanted");
    }
    const char *name = arguments->values[0], *directory = arguments->values[1];
    for (size_t i = 0; i < COUNT_OF(actions); i++) {
        if (strcmp(name, actions[i].name) != 0) continue;
        if (settings->disk.given && actions[i].run != collect) {
            return usage_error(&command_cache, "--disk is for gc");
        }
        if (settings->disk.given && settings->disk.value == 0) {
            return usage_error(&command_cache, "--disk 0 would keep nothing: remove the directory");
        }
        mf_status status = actions[i].run(directory, settings, &sound, &why);
        if (status != MF_OK) return report(&why);
        return sound ? EXIT_DONE : EXIT_FAILED;
    }
    return usage_error(&command_cache, "\"%s\" is none of ls, verify and gc", name);
}

const struct command command_cache = {
    .name = "cache",
    .summary = "list, check or shrink a directory of cached prefixes",
    .arguments = "ls|verify|gc DIR",
    .argument_limit = 2,
    .groups = groups,
    .group_count = COUNT_OF(groups),
    .opens_no_model = true,
    .notes =
        "ls shows what the directory holds: for every model its texts, as ranges of positions\n"
        "(what continues a text stands below it, further in), with pages of keys and values,\n"
        "checkpoints of recurrent layers, bytes, hits (they count half after 6 hours) and the\n"
        "last use. verify reads every file and compares checksums; its status is 1 where\n"
        "something is damaged. gc removes what is damaged and what no record names, and with\n"
        "--disk the least valuable files. A directory that another process uses is left alone.",
    .examples = "  moeflux cache ls ~/.cache/moeflux\n"
                "  moeflux cache ls ~/.cache/moeflux --json\n"
                "  moeflux cache verify ~/.cache/moeflux\n"
                "  moeflux cache gc ~/.cache/moeflux --disk 10G\n",
    .settings_bytes = sizeof(struct cache_settings),
    .run = run,
};
