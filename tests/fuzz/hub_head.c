/* Any bytes as the head of a response, as a file of refs/, and as what a user types: what is taken
 * from them has its form, and a name never leads out of the cache. */
#include "hub/head.h"

#include <stdlib.h>

/* Of support/fuzzed_model.h, whose other headers are those of the library. */
void must(bool condition);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_text(const char *text, size_t capacity)
{
    must(memchr(text, '\0', capacity));
}

static void check_head(const struct hub_head *head)
{
    check_text(head->commit, sizeof head->commit);
    check_text(head->linked_hash, sizeof head->linked_hash);
    check_text(head->location, sizeof head->location);
    check_text(head->next, sizeof head->next);
    check_text(head->error_code, sizeof head->error_code);
    must(!head->commit[0] || hub_is_hash(head->commit));
    must(!head->linked_hash[0] || hub_is_hash(head->linked_hash));
    must(head->status < 1000);
    must(!head->has_range || (head->first <= head->last && head->last < head->total));
    must(!head->has_retry || (head->retry_seconds >= 0 && head->retry_seconds <= 86400));
    must(!strpbrk(head->location, "\r\n") && !strpbrk(head->next, "\r\n"));
}

static void check_name(const char *text)
{
    struct hub_name name;
    char folder[HUB_REPOSITORY_CAPACITY + 32];

    if (!hub_name_parse(&name, text)) return;
    check_text(name.repository, sizeof name.repository);
    check_text(name.quantisation, sizeof name.quantisation);
    const char *slash = strchr(name.repository, '/');
    must(slash && slash > name.repository && slash[1] && !strchr(slash + 1, '/'));
    must(!strstr(name.repository, "..") && !strstr(name.repository, "--"));
    must(!strpbrk(name.quantisation, "/: \n"));
    hub_folder_name(folder, sizeof folder, name.repository);
    must(strncmp(folder, "models--", 8) == 0 && !strchr(folder, '/'));
    /* There is one way back. */
    char *between = strstr(folder + 8, "--");
    must(between && !strstr(between + 2, "--"));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct hub_head head;
    char hash[HUB_HASH_CAPACITY], *text = malloc(size + 1);

    must(text);
    if (size > 0) memcpy(text, data, size);
    text[size] = '\0';
    memset(&head, 0, sizeof head);
    for (const char *at = text, *end = text + size; at < end;) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        size_t length = (size_t)((stop ? stop + 1 : end) - at);
        hub_head_take(&head, at, length);
        check_head(&head);
        at += length;
    }
    if (hub_read_ref(hash, text, size)) must(hub_is_hash(hash));
    check_name(text);
    free(text);
    return 0;
}
