#include "hub/settings.h"

#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

/* A variable that is set to something, or NULL. */
static const char *variable(const char *name)
{
    const char *value = getenv(name);

    return value && *value ? value : NULL;
}

/* A base "~/x", which no shell has expanded, is in the user's home, as in the hub's own tools. */
static mf_status join(char out[PATH_CAPACITY], const char *base, const char *below, mf_error *why)
{
    const char *home =
        strncmp(base, "~/", 2) == 0 || strcmp(base, "~") == 0 ? variable("HOME") : NULL;
    int length = snprintf(out, PATH_CAPACITY, "%s%s%s%s", home ? home : "", home ? base + 1 : base,
                          below ? "/" : "", below ? below : "");

    if (length < PATH_CAPACITY) return MF_OK;
    return fail(why, MF_ERR_ARGUMENT, "the path of the Hugging Face cache is too long");
}

/* `below` the first of these places that the environment names; "" if it names none. */
static mf_status find_home(char out[PATH_CAPACITY], const char *below, mf_error *why)
{
    static const struct {
        const char *variable, *below;
    } places[] = {
        { "HF_HOME", NULL },
        { "XDG_CACHE_HOME", "huggingface" },
        { "HOME", ".cache/huggingface" },
    };
    char home[PATH_CAPACITY];

    for (size_t i = 0; i < COUNT_OF(places); i++) {
        const char *base = variable(places[i].variable);
        if (!base) continue;
        mf_status status = join(home, base, places[i].below, why);
        return status == MF_OK ? join(out, home, below, why) : status;
    }
    out[0] = '\0';
    return MF_OK;
}

mf_status hub_cache_directory(char out[PATH_CAPACITY], mf_error *why)
{
    const char *cache = variable("HF_HUB_CACHE");

    return cache ? join(out, cache, NULL, why) : find_home(out, "hub", why);
}

mf_status hub_need_cache(char out[PATH_CAPACITY], mf_error *why)
{
    mf_status status = hub_cache_directory(out, why);

    if (status != MF_OK || out[0]) return status;
    return fail(why, MF_ERR_IO, "there is no place for the cache: set HF_HOME");
}

/* A token goes into a header: printable characters only, without the space around it. */
static mf_status keep_token(struct hub_settings *out, const char *text, const char *from,
                            mf_error *why)
{
    size_t length;

    text += strspn(text, " \t\r\n");
    length = strlen(text);
    while (length > 0 && strchr(" \t\r\n", text[length - 1])) length--;
    if (length >= sizeof out->token) {
        return fail(why, MF_ERR_ARGUMENT, "the token in %s is too long", from);
    }
    for (size_t i = 0; i < length; i++) {
        if (text[i] <= ' ' || text[i] > '~') {
            return fail(why, MF_ERR_ARGUMENT, "the token in %s has characters that no token has",
                        from);
        }
    }
    memcpy(out->token, text, length);
    out->token[length] = '\0';
    return MF_OK;
}

static mf_status read_token(struct hub_settings *out, mf_error *why)
{
    const char *token = variable("HF_TOKEN"), *given = variable("HF_TOKEN_PATH");
    char path[PATH_CAPACITY], text[sizeof out->token + 8];
    FILE *file;

    if (token) return keep_token(out, token, "HF_TOKEN", why);
    mf_status status = given ? join(path, given, NULL, why) : find_home(path, "token", why);
    if (status != MF_OK || !path[0]) return status;
    file = fopen(path, "rbe");
    if (!file) return MF_OK; /* most users have none */
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    fclose(file);
    return keep_token(out, text, "the file of HF_HOME", why);
}

static bool is_true(const char *value)
{
    static const char *const names[] = { "1", "on", "yes", "true" };

    for (size_t i = 0; value && i < COUNT_OF(names); i++) {
        if (strcasecmp(value, names[i]) == 0) return true;
    }
    return false;
}

mf_status hub_settings_read(struct hub_settings *out, mf_error *why)
{
    const char *endpoint = variable("HF_ENDPOINT");
    mf_status status;

    *out = (struct hub_settings){ .offline = is_true(variable("HF_HUB_OFFLINE")) };
    if (!endpoint) endpoint = "https://huggingface.co";
    if (strlen(endpoint) >= sizeof out->endpoint) {
        return fail(why, MF_ERR_ARGUMENT, "HF_ENDPOINT is too long");
    }
    snprintf(out->endpoint, sizeof out->endpoint, "%s", endpoint);
    for (size_t length = strlen(endpoint); length > 0 && out->endpoint[length - 1] == '/';) {
        out->endpoint[--length] = '\0';
    }
    status = hub_cache_directory(out->cache, why);
    return status == MF_OK ? read_token(out, why) : status;
}
