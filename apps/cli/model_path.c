#include "model_path.h"

#include "base/status.h"
#include "model/model.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static bool is_directory(const char *path)
{
    struct stat info;

    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

static bool ends_with(const char *text, const char *end)
{
    size_t length = strlen(text), end_length = strlen(end);

    return length >= end_length && strcmp(text + length - end_length, end) == 0;
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
        mf_status status = path_join(place, sizeof place, program, places[i], why);
        if (status != MF_OK) return status;
        if (is_directory(place) && realpath(place, out)) return MF_OK;
    }
    return fail(why, MF_ERR_IO,
                "the embedded model is not beside this program (%.200s); name a model with -m",
                program);
}

/* ------------------------------------------------------- Hugging Face cache */

/* As the Hugging Face tools look for it: HF_HUB_CACHE, HF_HOME/hub,
 * XDG_CACHE_HOME/huggingface/hub, ~/.cache/huggingface/hub. */
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
            return path_join(out, PATH_CAPACITY, base, places[i].below, why);
        }
        if ((size_t)snprintf(out, PATH_CAPACITY, "%s", base) < PATH_CAPACITY) return MF_OK;
        return fail(why, MF_ERR_ARGUMENT, "%s is too long a path", places[i].variable);
    }
    return fail(why, MF_ERR_IO,
                "no Hugging Face cache is known: neither HF_HUB_CACHE, HF_HOME nor HOME is set");
}

/* Exactly one '/', and names that the hub allows. */
static bool is_repository_name(const char *model)
{
    const char *slash = strchr(model, '/');
    const char *letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";

    if (!slash || slash == model || slash[1] == '\0' || model[0] == '.') return false;
    if (strspn(model, letters) != (size_t)(slash - model)) return false;
    return slash[1] != '.' && strspn(slash + 1, letters) == strlen(slash + 1);
}

/* The name of the only directory entry, or "" when there is none or more than one. */
static void only_entry(char *out, size_t capacity, const char *directory)
{
    DIR *listing = opendir(directory);
    size_t count = 0;

    out[0] = '\0';
    if (!listing) return;
    for (struct dirent *entry; (entry = readdir(listing));) {
        if (entry->d_name[0] == '.') continue;
        if (count++ == 0) snprintf(out, capacity, "%s", entry->d_name);
    }
    closedir(listing);
    if (count != 1) out[0] = '\0';
}

/* The commit that refs/main names; a cache filled by hand may lack it and have one snapshot. */
static void main_commit(char *out, size_t capacity, const char *repository)
{
    char path[PATH_CAPACITY + 32], *text = NULL;
    size_t length;

    out[0] = '\0';
    snprintf(path, sizeof path, "%s/refs/main", repository);
    if (file_read_whole_new(&text, &length, &files_posix, path, 256, NULL) == MF_OK) {
        text[strcspn(text, " \r\n")] = '\0';
        if (path_is_base_name(text)) snprintf(out, capacity, "%s", text);
        free(text);
    }
    if (out[0]) return;
    snprintf(path, sizeof path, "%s/snapshots", repository);
    only_entry(out, capacity, path);
}

static mf_status find_in_cache(char *out, const char *model, mf_error *why)
{
    char cache[PATH_CAPACITY], folder[512], repository[PATH_CAPACITY], commit[256];
    const char *slash = strchr(model, '/');
    mf_status status = cache_directory(cache, why);

    if (status != MF_OK) return status;
    if (strlen(model) > sizeof folder - 16) {
        return fail(why, MF_ERR_ARGUMENT, "%.64s… is too long a name", model);
    }
    snprintf(folder, sizeof folder, "models--%.*s--%s", (int)(slash - model), model, slash + 1);
    status = path_join(repository, sizeof repository, cache, folder, why);
    if (status != MF_OK) return status;
    if (!is_directory(repository)) {
        return fail(why, MF_ERR_IO,
                    "%.128s is neither a directory nor in the Hugging Face cache %.256s", model,
                    cache);
    }
    main_commit(commit, sizeof commit, repository);
    if (commit[0]) {
        int used = snprintf(out, PATH_CAPACITY, "%s/snapshots/%s", repository, commit);
        if (used < PATH_CAPACITY && is_directory(out)) return MF_OK;
    }
    return fail(why, MF_ERR_IO, "%.128s is in the Hugging Face cache, but without a main snapshot",
                model);
}

/* ---------------------------------------------------------------------- all */

bool model_path_is_gguf(const char *path)
{
    return ends_with(path, ".gguf") && !is_directory(path);
}

mf_status model_path_resolve(char *out, const char *model, mf_error *why)
{
    struct stat info;

    if (!model) return find_embedded(out, why);
    if (*model == '\0') return fail(why, MF_ERR_ARGUMENT, "the model's name is empty");
    if (strlen(model) >= PATH_CAPACITY) {
        return fail(why, MF_ERR_ARGUMENT, "the model's path is too long");
    }
    if (stat(model, &info) != 0) {
        int number = errno;
        if (is_repository_name(model)) return find_in_cache(out, model, why);
        return fail_errno(why, MF_ERR_IO, number, "model %.256s", model);
    }
    if (!S_ISDIR(info.st_mode) && ends_with(model, ".safetensors")) {
        return fail(why, MF_ERR_UNSUPPORTED,
                    "%.256s is a part of a checkpoint: give the directory that it is in", model);
    }
    if (!S_ISDIR(info.st_mode) && !ends_with(model, ".gguf")) {
        return fail(why, MF_ERR_UNSUPPORTED,
                    "%.256s is neither a checkpoint directory nor a .gguf file", model);
    }
    snprintf(out, PATH_CAPACITY, "%s", model);
    return MF_OK;
}

mf_status model_path_of_parts(char *out, const char *path, mf_error *why)
{
    return model_parts_path(out, PATH_CAPACITY, &files_posix, path, why);
}
