#include "model_path.h"

#include "common/error.h"
#include "hub/local.h"
#include "hub/settings.h"
#include "moeflux_tools.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

static mf_status path_join_to(char *out, const char *directory, const char *name, mf_error *why)
{
    if ((size_t)snprintf(out, PATH_CAPACITY, "%s/%s", directory, name) < PATH_CAPACITY) {
        return MF_OK;
    }
    return fail(why, MF_ERR_ARGUMENT, "the path of %.64s in %.128s is too long", name, directory);
}

static bool is_directory(const char *path)
{
    struct stat info;

    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

/* ----------------------------------------------------------- embedded model */

static mf_status find_embedded(char *out, mf_error *why)
{
    /* build/moeflux, build/asan/moeflux, and an installed bin/moeflux. */
    static const char *const places[] = {
        "../models/pebble",
        "../../models/pebble",
        "../share/moeflux/models/pebble",
    };
    char program[PATH_CAPACITY];
    ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
    char place[PATH_CAPACITY], *slash;

    if (length < 0) return fail_errno(why, MF_ERR_IO, errno, "cannot find this program's own path");
    program[length] = '\0';
    slash = strrchr(program, '/');
    if (slash) *slash = '\0';
    for (size_t i = 0; i < COUNT_OF(places); i++) {
        mf_status status = path_join_to(place, program, places[i], why);
        if (status != MF_OK) return status;
        if (is_directory(place) && realpath(place, out)) return MF_OK;
    }
    return fail(why, MF_ERR_IO,
                "the embedded model Pebble is not where this program looks for it: in %s, %s and "
                "%s of %.200s; copy models/pebble there with the program, or name a model with -m",
                places[0], places[1], places[2], program);
}

/* ------------------------------------------------------- Hugging Face cache */

bool model_path_is_name(struct hub_name *out, const char *model)
{
    struct stat info;

    return model && stat(model, &info) != 0 && hub_name_parse(out, model);
}

/* org/name:QUANT, and org/name of which the cache has several. */
static mf_status find_quantisation(char *out, const struct hub_name *name, const char *cache,
                                   mf_error *why)
{
    bool found;
    mf_status status = hub_local_find(&found, out, cache, name, why);

    if (status != MF_OK || out[0]) return status;
    if (found || !name->quantisation[0]) {
        return mf_model_find(out, PATH_CAPACITY, name->repository, cache, NULL, why);
    }
    return fail(why, MF_ERR_IO,
                "%.128s:%.64s is not in the Hugging Face cache %.200s; `moeflux pull %.128s:%.64s` "
                "puts it there",
                name->repository, name->quantisation, cache, name->repository, name->quantisation);
}

/* ---------------------------------------------------------------------- all */

/* "qwen3:30b", and not "Note: this" or "12:30". */
static bool is_tagged(const char *word)
{
    const char *colon = strchr(word, ':');

    return colon && colon > word && colon[1] && !isdigit((unsigned char)word[0]) &&
           strlen(word) == strspn(word, "abcdefghijklmnopqrstuvwxyz0123456789.-_:");
}

/* A directory with weights: others may well be meant as a prompt's word. */
static bool is_checkpoint(const char *directory)
{
    mf_description *description;

    if (mf_description_open(&description, directory, NULL) != MF_OK) return false;
    mf_description_close(description);
    return true;
}

static bool has_model_form(const char *word)
{
    size_t length = strlen(word);

    if (strpbrk(word, " \t\r\n")) return false;
    if (length > 5 && strcasecmp(word + length - 5, ".gguf") == 0) return true;
    if (is_tagged(word)) return true;
    return strchr(word, '/') && length > 2;
}

bool model_path_is_meant(const char *word)
{
    char path[PATH_CAPACITY];
    struct stat info;

    if (has_model_form(word)) return true;
    if (stat(word, &info) != 0) return false;
    return S_ISDIR(info.st_mode) ? is_checkpoint(word)
                                 : model_path_resolve(path, word, NULL) == MF_OK;
}

mf_status model_path_resolve(char *out, const char *model, mf_error *why)
{
    char cache[PATH_CAPACITY];
    struct hub_name name;

    if (!model) return find_embedded(out, why);
    mf_status status = hub_cache_directory(cache, why);
    if (status != MF_OK) return status;
    if (cache[0] && model_path_is_name(&name, model)) {
        return find_quantisation(out, &name, cache, why);
    }
    return mf_model_find(out, PATH_CAPACITY, model, cache[0] ? cache : NULL, NULL, why);
}
