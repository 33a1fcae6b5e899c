/* settings.h: what the environment says about the hub and its cache, read as the hub's own tools
 * read it.
 *
 *     HF_ENDPOINT        the hub's address; default https://huggingface.co
 *     HF_TOKEN           the user's token; else the file HF_TOKEN_PATH, else HF_HOME/token
 *     HF_HUB_CACHE       the cache; else HF_HOME/hub
 *     HF_HOME            default XDG_CACHE_HOME/huggingface, ~/.cache/huggingface
 *     HF_HUB_OFFLINE     1, true, yes or on: no network
 *
 * "~/" at the beginning of a path is the user's home. */
#ifndef HUB_SETTINGS_H
#define HUB_SETTINGS_H

#include "common/basics.h"
#include "common/error.h"

struct hub_settings {
    char endpoint[512];        /* without a '/' at the end */
    char token[512];           /* "" none */
    char cache[PATH_CAPACITY]; /* "" where no directory is known */
    bool offline;
};

mf_status hub_settings_read(struct hub_settings *out, mf_error *why);

/* The cache alone; "" where none is known. */
mf_status hub_cache_directory(char out[PATH_CAPACITY], mf_error *why);

/* Likewise; MF_ERR_IO where none is known. */
mf_status hub_need_cache(char out[PATH_CAPACITY], mf_error *why);

#endif
