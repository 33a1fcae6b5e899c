/* open.c: a tokenizer from the files of a model's directory. */
#include "tokenizer/internal.h"

#include "base/file.h"
#include "base/json.h"
#include "base/status.h"

#include <errno.h>
#include <stdlib.h>

/* bos_token is a string, or an object with its content. */
static const char *token_name(const json_t *config, const char *key)
{
    const json_t *token = json_object_get(config, key);
    if (json_is_object(token)) token = json_object_get(token, "content");
    return json_string_value(token);
}

mf_status tokenizer_read_config(struct tokenizer *tokenizer, const json_t *config, mf_error *why)
{
    static const char where[] = "tokenizer_config.json";
    if (!config) return MF_OK;
    bool add = tokenizer->bos >= 0,
         said = json_is_boolean(json_object_get(config, "add_bos_token"));
    mf_status status = json_maybe_flag(&add, config, "add_bos_token", where, why);
    if (status != MF_OK || !said) return status;
    tokenizer->bos = -1;
    if (!add) return MF_OK;
    const char *name = token_name(config, "bos_token");
    tokenizer->bos = name ? tokenizer_find(tokenizer, name) : -1;
    if (tokenizer->bos < 0)
        return fail(why, MF_ERR_MISMATCH,
                    "%s: add_bos_token is set, but bos_token \"%.64s\" is no token", where,
                    name ? name : "");
    return MF_OK;
}

mf_status tokenizer_config_read_new(json_t **out, const mf_files *files, const char *directory,
                                    mf_error *why)
{
    return json_read_maybe_new(out, files, directory, "tokenizer_config.json", TOKENIZER_FILE_LIMIT,
                               why);
}

static mf_status open_json(struct tokenizer **out, const mf_files *files, const char *path,
                           mf_error *why)
{
    char *text;
    size_t length;
    mf_status status = file_read_whole_new(&text, &length, files, path, TOKENIZER_FILE_LIMIT, why);
    if (status == MF_OK) status = file_refuse_pointer(path, text, length, why);
    if (status == MF_OK) status = tokenizer_parse_new(out, text, length, path, why);
    free(text);
    return status;
}

/* Which of the files are there.  Asked of the directory, not by opening them: one that is
 * there and cannot be read is an error. */
struct listing {
    bool json, ranks;
};

static void note_entry(void *context, const char *name)
{
    struct listing *listing = context;
    listing->json |= strcmp(name, "tokenizer.json") == 0;
    listing->ranks |= strcmp(name, "tiktoken.model") == 0;
}

mf_status tokenizer_probe(bool *present, const mf_files *files, const char *directory,
                          mf_error *why)
{
    struct listing listing = { 0 };
    int result = files->list(files->user, directory, note_entry, &listing);
    *present = listing.json || listing.ranks;
    if (result >= 0 || result == -ENOENT) return MF_OK;
    return fail_errno(why, MF_ERR_IO, -result, "%s/tokenizer.json cannot be looked for", directory);
}

mf_status tokenizer_open_configured_new(struct tokenizer **out, const mf_files *files,
                                        const char *directory, const json_t *config, mf_error *why)
{
    char path[PATH_CAPACITY];
    struct listing listing = { 0 };
    struct tokenizer *tokenizer = NULL;
    *out = NULL;
    int result = files->list(files->user, directory, note_entry, &listing);
    if (result < 0) return fail_errno(why, MF_ERR_IO, -result, "%s cannot be listed", directory);
    bool tiktoken = listing.ranks && !listing.json;
    const char *name = tiktoken ? "tiktoken.model" : "tokenizer.json";
    mf_status status = path_join(path, sizeof path, directory, name, why);
    if (status == MF_OK)
        status = tiktoken ? tokenizer_open_tiktoken_new(&tokenizer, files, path, config, why)
                          : open_json(&tokenizer, files, path, why);
    if (status == MF_OK) status = tokenizer_read_config(tokenizer, config, why);
    if (status == MF_OK) {
        *out = tokenizer;
        tokenizer = NULL; /* the caller's now */
    }
    tokenizer_free(tokenizer);
    return status;
}
