/* name.h: names that users type and that a hub sends.
 *
 *     org/name            a repository
 *     org/name:QUANT      its GGUF files of that quantisation
 *     https://huggingface.co/org/name, hf.co/org/name:QUANT      the same
 *
 * What a hub sends becomes part of a path, so it is checked here before anything else sees it. */
#ifndef HUB_NAME_H
#define HUB_NAME_H

#include "common/basics.h"

enum {
    HUB_REPOSITORY_CAPACITY = 200,
    HUB_QUANTISATION_CAPACITY = 160,
    HUB_HASH_CAPACITY = 65, /* SHA-256 in hexadecimal, or the 40 digits of git */
    HUB_FILE_NAME_LIMIT = 1024
};

struct hub_name {
    char repository[HUB_REPOSITORY_CAPACITY];     /* "org/name" */
    char quantisation[HUB_QUANTISATION_CAPACITY]; /* "" where none was given */
};

/* False: `text` is no such name. */
bool hub_name_parse(struct hub_name *out, const char *text);

/* Whether a file's name, `length` bytes, stays inside the directory that it is appended to:
 * components separated by '/', none of them empty, "." or "..", without backslashes and control
 * characters, and short enough for a file system. */
bool hub_file_name_is_safe(const char *name, size_t length);

/* 40 or 64 hexadecimal digits, lower case: what blobs and commits are called. */
bool hub_is_hash(const char *text);

/* "models--org--name": the repository's directory in the cache. */
void hub_folder_name(char *out, size_t capacity, const char *repository);

#endif
