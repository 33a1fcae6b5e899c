/* cache_texts.h: the files of a cache directory, shown as the texts that they are of. */
#ifndef CLI_CACHE_TEXTS_H
#define CLI_CACHE_TEXTS_H

#include "common/json.h"
#include "moeflux_tools.h"

struct cache_texts {
    mf_cached_file *files; /* as the library lists them; the names of models are copies */
    size_t count, room;
    bool failed; /* memory ran out */
};

/* An mf_cached_file_function; `user` is the struct, zeroed at first. */
void cache_texts_add(void *user, const mf_cached_file *file);
void cache_texts_free(struct cache_texts *texts);

/* One table for each model.  Pages that follow each other without a branch are one line.
 * False: no memory. */
bool cache_texts_print(const struct cache_texts *texts);

/* The files with a problem, a line each. */
void cache_texts_print_problems(const struct cache_texts *texts);

/* An array of objects, one for each file. */
json_t *cache_texts_json_new(const struct cache_texts *texts);

#endif
