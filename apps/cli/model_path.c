#include "model_path.h"

#include "common/error.h"
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

/* As the Hugging Face tools look for it: HF_HUB_CACHE, HF_HOME/hub,
 * XDG_CACHE_HOME/huggingface/hub, ~/.cache/huggingface/hub; "" where none of them is set. */
static mf_status cache_directory(char *out, mf_error *why)
{
    static const struct {
        const char *variable, *below;
    } places[] = {
        { "HF_HUB_CACHE", "." },
        { "HF_HOME", "hub" },
        { "XDG_CACHE_HOME", "huggingface/hub" },
        { "HOME", ".cache/huggingface/hub" },
    };

    for (size_t i = 0; i < COUNT_OF(places); i++) {
        const char *base = getenv(places[i].variable);
        if (!base || !*base) continue;
        if (strcmp(places[i].below, ".") != 0) {
            return path_join_to(out, base, places[i].below, why);
        }
        if ((size_t)snprintf(out, PATH_CAPACITY, "%s", base) < PATH_CAPACITY) return MF_OK;
        return fail(why, MF_ERR_ARGUMENT, "%s is too long a path", places[i].variable);
    }
    out[0] = '\0';
    return MF_OK;
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

    if (!model) return find_embedded(out, why);
    mf_status status = cache_directory(cache, why);
    if (status != MF_OK) return status;
    return mf_model_find(out, PATH_CAPACITY, model, cache[0] ? cache : NULL, NULL, why);
}
