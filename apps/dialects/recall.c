#include "dialects/recall.h"

#include "common/basics.h"

#include <pthread.h>
#include <stdlib.h>

enum { START = 1 };

struct print {
    char id[48];
    uint32_t owner, tokens;
    uint64_t tools, system, other;
    uint64_t messages; /* of all of them, in order */
    size_t count;      /* of messages */
};

struct recall {
    pthread_mutex_t lock;
    size_t next;
    struct print prints[RECALL_COUNT]; /* a ring */
};

mf_status recall_new(struct recall **out, mf_error *why)
{
    *out = calloc(1, sizeof **out);
    if (!*out) return fail_memory(why, sizeof **out);
    pthread_mutex_init(&(*out)->lock, NULL);
    return MF_OK;
}

void recall_free(struct recall *recall)
{
    if (!recall) return;
    pthread_mutex_destroy(&recall->lock);
    free(recall);
}

static int add_bytes(const char *bytes, size_t count, void *hash_)
{
    uint64_t *hash = hash_;

    for (size_t i = 0; i < count; i++) *hash = (*hash ^ (unsigned char)bytes[i]) * 1099511628211u;
    return 0;
}

/* Continues a hash with a value; 0 stays that of no value. */
static uint64_t hash_of(uint64_t hash, const json_t *value)
{
    if (!value) return hash;
    hash ^= 14695981039346656037u;
    json_dump_callback(value, add_bytes, &hash, JSON_COMPACT | JSON_ENCODE_ANY | JSON_SORT_KEYS);
    return hash;
}

static bool is_system(const json_t *message)
{
    const char *role = json_string_value(json_object_get(message, "role"));

    return role && strcmp(role, "system") == 0;
}

/* Of the first `count` messages behind the system's. */
static uint64_t hash_messages(const struct ask *ask, size_t count)
{
    size_t first = is_system(json_array_get(ask->messages, 0));
    uint64_t hash = START;

    for (size_t i = 0; i < count; i++)
        hash = hash_of(hash, json_array_get(ask->messages, first + i));
    return hash;
}

static struct print print_of(const struct ask *ask)
{
    const json_t *first = json_array_get(ask->messages, 0);
    struct print print = { .owner = ask->owner,
                           .tools = hash_of(0, ask->tools),
                           .system = is_system(first) ? hash_of(0, first) : 0,
                           .other = hash_of(0, ask->variables),
                           .count = json_array_size(ask->messages) - is_system(first) };

    memcpy(print.id, ask->id, sizeof print.id);
    print.messages = hash_messages(ask, print.count);
    return print;
}

void recall_keep(struct recall *recall, const struct ask *ask, uint32_t tokens)
{
    struct print print = print_of(ask);

    print.tokens = tokens;
    pthread_mutex_lock(&recall->lock);
    recall->prints[recall->next++ % RECALL_COUNT] = print;
    pthread_mutex_unlock(&recall->lock);
}

static bool find(struct recall *recall, struct print *out, const struct ask *ask, const char *id)
{
    bool found = false;

    pthread_mutex_lock(&recall->lock);
    for (size_t i = 0; i < RECALL_COUNT && !found; i++) {
        found = recall->prints[i].owner == ask->owner && strcmp(recall->prints[i].id, id) == 0;
        if (found) *out = recall->prints[i];
    }
    pthread_mutex_unlock(&recall->lock);
    return found;
}

enum recall_change recall_compare(struct recall *recall, uint32_t *tokens, const struct ask *ask,
                                  const char *id)
{
    struct print now = print_of(ask), then;

    *tokens = 0;
    if (id[0] == '\0' || !find(recall, &then, ask, id)) return RECALL_UNKNOWN;
    *tokens = then.tokens;
    if (now.tools != then.tools) return RECALL_TOOLS;
    if (now.system != then.system) return RECALL_SYSTEM;
    if (now.count < then.count || hash_messages(ask, then.count) != then.messages)
        return RECALL_MESSAGES;
    return now.other != then.other ? RECALL_OTHER : RECALL_NONE;
}
