#include "hub/name.h"

#include <stdio.h>

static const char name_letters[] =
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";

enum { PART_LIMIT = 96, COMPONENT_LIMIT = 255 };

/* An organisation or a model: "--" separates both in the cache, so neither may have it. */
static bool is_part(const char *part, size_t length)
{
    if (length == 0 || length > PART_LIMIT || strspn(part, name_letters) < length) return false;
    if (strchr("-.", part[0]) || strchr("-.", part[length - 1])) return false;
    for (size_t i = 0; i + 1 < length; i++) {
        if (part[i] == part[i + 1] && strchr("-.", part[i])) return false;
    }
    return true;
}

/* Skips the address of the hub, if `text` begins with it. */
static const char *without_address(const char *text)
{
    static const char *const hosts[] = { "huggingface.co/", "hf.co/" };
    const char *name = strncmp(text, "https://", 8) == 0 ? text + 8 : text;

    for (size_t i = 0; i < COUNT_OF(hosts); i++) {
        if (strncmp(name, hosts[i], strlen(hosts[i])) == 0) return name + strlen(hosts[i]);
    }
    return text;
}

bool hub_name_parse(struct hub_name *out, const char *text)
{
    *out = (struct hub_name){ "", "" };
    text = without_address(text);
    const char *slash = strchr(text, '/');
    if (!slash) return false;
    const char *name = slash + 1, *colon = strchr(name, ':');
    size_t length = colon ? (size_t)(colon - name) : strlen(name);
    if (!is_part(text, (size_t)(slash - text)) || !is_part(name, length)) return false;
    if (colon) {
        size_t rest = strlen(colon + 1);
        if (rest == 0 || rest >= sizeof out->quantisation) return false;
        if (strspn(colon + 1, name_letters) != rest) return false;
        memcpy(out->quantisation, colon + 1, rest + 1);
    }
    snprintf(out->repository, sizeof out->repository, "%.*s", (int)(name + length - text), text);
    return true;
}

bool hub_file_name_is_safe(const char *name, size_t length)
{
    size_t component = 0;

    if (length == 0 || length > HUB_FILE_NAME_LIMIT) return false;
    for (size_t i = 0; i <= length; i++) {
        if (i == length || name[i] == '/') {
            const char *begin = name + i - component;
            if (component == 0 || component > COMPONENT_LIMIT) return false;
            if (component <= 2 && begin[0] == '.' && begin[component - 1] == '.') return false;
            component = 0;
            continue;
        }
        unsigned char letter = (unsigned char)name[i];
        if (letter < 0x20 || letter == 0x7f || letter == '\\') return false;
        component++;
    }
    return true;
}

bool hub_is_hash(const char *text)
{
    size_t length = strlen(text);

    return (length == 40 || length == 64) && strspn(text, "0123456789abcdef") == length;
}

void hub_folder_name(char *out, size_t capacity, const char *repository)
{
    size_t owner = strcspn(repository, "/");

    snprintf(out, capacity, "models--%.*s%s%s", (int)owner, repository,
             repository[owner] ? "--" : "", repository[owner] ? repository + owner + 1 : "");
}
