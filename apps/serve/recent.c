#include "serve/recent.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RECENT_MAX = 1024 };

struct past {
    char id[48];
    uint32_t owner, prompt_tokens;
    uint64_t tools, effort; /* hashes */
};

struct recent {
    pthread_mutex_t lock;
    size_t next;
    struct past list[RECENT_MAX]; /* a ring */
};

mf_status recent_new(struct recent **out, mf_error *why)
{
    *out = calloc(1, sizeof **out);
    if (!*out) return fail_memory(why, sizeof **out);
    pthread_mutex_init(&(*out)->lock, NULL);
    return MF_OK;
}

void recent_free(struct recent *recent)
{
    if (!recent) return;
    pthread_mutex_destroy(&recent->lock);
    free(recent);
}

/* 0: there is none, or it is null. */
static uint64_t hash_of(const json_t *value)
{
    uint64_t hash = 14695981039346656037u;
    char *text = value && !json_is_null(value)
                     ? json_dumps(value, JSON_COMPACT | JSON_SORT_KEYS | JSON_ENCODE_ANY)
                     : NULL;

    if (!text) return 0;
    for (const char *at = text; *at; at++) hash = (hash ^ (unsigned char)*at) * 1099511628211u;
    free(text);
    return hash;
}

static struct past past_of(const struct ask *ask, uint32_t prompt_tokens)
{
    const json_t *reasoning = json_object_get(ask->body, "reasoning");
    struct past past = { .owner = ask->owner,
                         .prompt_tokens = prompt_tokens,
                         .tools = hash_of(ask->tools),
                         .effort = hash_of(json_object_get(reasoning, "effort")) };

    snprintf(past.id, sizeof past.id, "%s", ask->id);
    return past;
}

void recent_add(struct recent *recent, const struct ask *ask, uint32_t prompt_tokens)
{
    struct past past = past_of(ask, prompt_tokens);

    pthread_mutex_lock(&recent->lock);
    recent->list[recent->next] = past;
    recent->next = (recent->next + 1) % RECENT_MAX;
    pthread_mutex_unlock(&recent->lock);
}

static bool find(struct recent *recent, const char *id, uint32_t owner, struct past *out)
{
    bool found = false;

    pthread_mutex_lock(&recent->lock);
    for (size_t i = 0; i < RECENT_MAX && !found; i++) {
        found = recent->list[i].owner == owner && strcmp(recent->list[i].id, id) == 0;
        if (found) *out = recent->list[i];
    }
    pthread_mutex_unlock(&recent->lock);
    return found;
}

json_t *recent_compare_new(struct recent *recent, const char *id, const struct ask *ask,
                           uint32_t prompt_tokens, const mf_resumed *cached)
{
    struct past now = past_of(ask, prompt_tokens), then;
    const char *reason;

    if (!*id || !find(recent, id, ask->owner, &then))
        return json_pack("{s:s}", "type", "comparison_response_not_found");
    /* The last token of a prompt is always computed. */
    if (cached->matched + 1 >= then.prompt_tokens && cached->reason != MF_RESUME_OFF)
        return json_pack("{s:s}", "type", "cache_hit");
    if (now.tools != then.tools)
        reason = "tools_changed";
    else if (now.effort != then.effort)
        reason = "reasoning_effort_changed";
    else if (cached->reason == MF_RESUME_DIFFERS)
        reason = "input_changed";
    else /* what the other one left is no longer there */
        return json_pack("{s:s}", "type", "unavailable");
    return json_pack("{s:s, s:s, s:i, s:i}", "type", "cache_miss", "reason", reason,
                     "cache_missed_tokens", (int)(prompt_tokens - cached->matched),
                     "comparison_reusable_tokens", (int)cached->matched);
}
