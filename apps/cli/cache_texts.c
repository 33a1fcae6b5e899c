#include "cache_texts.h"

#include "shown.h"
#include "terminal.h"

#include "common/basics.h"

#include <stdlib.h>

void cache_texts_add(void *user, const mf_cached_file *file)
{
    struct cache_texts *texts = user;

    if (texts->count == texts->room && !texts->failed) {
        size_t room = texts->room ? 2 * texts->room : 64;
        mf_cached_file *files = realloc(texts->files, room * sizeof *files);
        texts->failed = !files;
        if (files) texts->files = files;
        if (files) texts->room = room;
    }
    char *model = texts->failed ? NULL : strdup(file->model);
    if (!model) {
        texts->failed = true;
        return;
    }
    texts->files[texts->count] = *file;
    texts->files[texts->count++].model = model;
}

void cache_texts_free(struct cache_texts *texts)
{
    for (size_t i = 0; i < texts->count; i++) free((char *)texts->files[i].model);
    free(texts->files);
    *texts = (struct cache_texts){ 0 };
}

/* --------------------------------------------------------------------- lines */

/* Files that are shown in one line: pages that follow each other, with their checkpoints. */
struct line {
    uint32_t depth, from, to; /* positions; `to` is not in it */
    uint64_t pages, checkpoints, bytes;
    double hits, age_seconds; /* the most hits; the youngest */
    uint32_t last_checkpoint;
};

static void add_to_line(struct line *line, const mf_cached_file *file)
{
    if (file->checkpoint) {
        line->checkpoints++;
        if (file->position + file->count > line->last_checkpoint)
            line->last_checkpoint = file->position + file->count;
    } else {
        line->pages++;
        line->to = file->position + file->count;
    }
    line->bytes += file->bytes;
    if (file->hits > line->hits) line->hits = file->hits;
    if (file->age_seconds < line->age_seconds) line->age_seconds = file->age_seconds;
}

/* How many pages continue each page, [count]; to be freed.  NULL: no memory. */
static uint32_t *branches_new(const struct cache_texts *texts)
{
    uint32_t *branches = calloc(texts->count + 1, sizeof *branches);
    size_t *last = calloc(texts->count + 1, sizeof *last); /* page at each depth */

    for (size_t i = 0; branches && last && i < texts->count; i++) {
        const mf_cached_file *file = &texts->files[i];
        if (file->checkpoint) continue;
        last[file->depth] = i;
        if (file->depth > 0) branches[last[file->depth - 1]]++;
    }
    if (!last) {
        free(branches);
        branches = NULL;
    }
    free(last);
    return branches;
}

/* The index behind the last file of the line that begins with file `at`. */
static size_t read_line(struct line *out, const struct cache_texts *texts, const uint32_t *branches,
                        size_t at)
{
    const mf_cached_file *start = &texts->files[at];
    size_t page = at;

    *out = (struct line){ .depth = start->depth,
                          .from = start->position,
                          .to = start->position,
                          .age_seconds = start->age_seconds };
    add_to_line(out, start);
    for (at++; at < texts->count && !start->checkpoint; at++) {
        const mf_cached_file *file = &texts->files[at];
        if (file->checkpoint) {
            if (strcmp(file->root, start->root) != 0) break;
        } else {
            if (file->depth != texts->files[page].depth + 1 || branches[page] != 1) break;
            page = at;
        }
        add_to_line(out, file);
    }
    return at;
}

static const char *age_text(double seconds, char *out, size_t capacity)
{
    if (seconds < 60) {
        snprintf(out, capacity, "%.0f s", seconds);
    } else if (seconds < 3600) {
        snprintf(out, capacity, "%.0f min", seconds / 60);
    } else if (seconds < 48 * 3600) {
        snprintf(out, capacity, "%.0f h", seconds / 3600);
    } else {
        snprintf(out, capacity, "%.0f days", seconds / 86400);
    }
    return out;
}

/* `level`: branches above. */
static void print_line(const struct line *line, unsigned level)
{
    char range[64], size[32], age[32], checkpoints[64] = "";
    int indent = (int)(level < 12 ? level : 12) * 2;

    if (line->pages) {
        snprintf(range, sizeof range, "%*s%u-%u", indent, "", line->from, line->to - 1);
    } else {
        snprintf(range, sizeof range, "%*sat %u", indent, "", line->last_checkpoint);
    }
    if (line->checkpoints == 1) {
        snprintf(checkpoints, sizeof checkpoints, "1 at %u", line->last_checkpoint);
    } else if (line->checkpoints) {
        snprintf(checkpoints, sizeof checkpoints, "%llu to %u",
                 (unsigned long long)line->checkpoints, line->last_checkpoint);
    }
    printf("  %-26s %6llu  %-14s %10s %6.1f  %s\n", range, (unsigned long long)line->pages,
           checkpoints, size_text(line->bytes, size, sizeof size), line->hits,
           age_text(line->age_seconds, age, sizeof age));
}

/* Depths at which the lines that are still open begin, to count branches. */
static unsigned level_of(uint32_t *open, unsigned *count, uint32_t depth)
{
    enum { LEVELS = 64 };

    while (*count > 0 && open[*count - 1] >= depth) --*count;
    if (*count < LEVELS) open[(*count)++] = depth;
    return *count - 1;
}

/* The files of one model from `at` on; the index behind the last. */
static size_t print_model(const struct cache_texts *texts, const uint32_t *branches, size_t at)
{
    const mf_cached_file *start = &texts->files[at];
    uint32_t open[64];
    unsigned open_count = 0;
    struct line line;

    visible_printf(stdout, "%s  (%.8s)\n", *start->model ? start->model : "unknown model",
                   start->root);
    printf("  %-26s %6s  %-14s %10s %6s  %s\n", "positions", "pages", "checkpoints", "size", "hits",
           "last use");
    while (at < texts->count && strcmp(texts->files[at].root, start->root) == 0) {
        at = read_line(&line, texts, branches, at);
        print_line(&line, level_of(open, &open_count, line.depth));
    }
    return at;
}

bool cache_texts_print(const struct cache_texts *texts)
{
    uint32_t *branches = branches_new(texts);

    for (size_t at = 0; branches && at < texts->count;) {
        at = print_model(texts, branches, at);
        printf("\n");
    }
    bool printed = branches != NULL;
    free(branches);
    return printed;
}

void cache_texts_print_problems(const struct cache_texts *texts)
{
    for (size_t i = 0; i < texts->count; i++) {
        const mf_cached_file *file = &texts->files[i];
        if (!file->problem) continue;
        printf("%-8s %s.%s  ", file->problem, file->key, file->checkpoint ? "state" : "page");
        visible_printf(stdout, "%s, positions %u-%u\n",
                       *file->model ? file->model : "unknown model", file->position,
                       file->position + file->count - 1);
    }
}

json_t *cache_texts_json_new(const struct cache_texts *texts)
{
    json_t *list = json_array();

    for (size_t i = 0; i < texts->count; i++) {
        const mf_cached_file *file = &texts->files[i];
        json_t *object = json_pack(
            "{s:s, s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:f, s:f, s:s?}", "model", file->model,
            "root", file->root, "key", file->key, "kind", file->checkpoint ? "checkpoint" : "page",
            "depth", (json_int_t)file->depth, "position", (json_int_t)file->position, "count",
            (json_int_t)file->count, "bytes", (json_int_t)file->bytes, "hits", file->hits,
            "age_seconds", file->age_seconds, "problem", file->problem);
        json_array_append_new(list, object);
    }
    return list;
}
