#include "view/registry.h"

#include "common/clock.h"
#include "serve/guard.h"
#include "serve/reply.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { RECENT_MAX = 50 };

enum record_state { RECORD_WAITING, RECORD_READING, RECORD_ANSWERING, RECORD_ENDED };

struct record {
    struct record *next;
    char id[48];
    const char *api;
    uint64_t client;
    uint32_t owner;
    enum record_state state;
    uint32_t prompt_tokens, read, answer_tokens;
    uint32_t left; /* answers that have not ended */
    double begun;  /* clock */
    time_t started;
    bool released;
    mf_request_result result;
};

struct registry {
    pthread_mutex_t lock;
    struct record *records; /* the newest first */
    size_t active, ended;
};

mf_status registry_new(struct registry **out, mf_error *why)
{
    *out = calloc(1, sizeof **out);
    if (!*out) return fail_memory(why, sizeof **out);
    pthread_mutex_init(&(*out)->lock, NULL);
    return MF_OK;
}

void registry_free(struct registry *registry)
{
    if (!registry) return;
    for (struct record *record = registry->records, *next; record; record = next) {
        next = record->next;
        free(record);
    }
    pthread_mutex_destroy(&registry->lock);
    free(registry);
}

struct record *registry_begin(struct registry *registry, const struct ask *ask,
                              uint32_t prompt_tokens)
{
    struct record *record = calloc(1, sizeof *record);

    if (!record) return NULL;
    snprintf(record->id, sizeof record->id, "%s", ask->id);
    record->api = ask->api;
    record->client = ask->client;
    record->owner = ask->owner;
    record->prompt_tokens = prompt_tokens;
    record->left = ask->choices;
    record->begun = clock_seconds();
    record->started = time(NULL);
    pthread_mutex_lock(&registry->lock);
    record->next = registry->records;
    registry->records = record;
    registry->active++;
    pthread_mutex_unlock(&registry->lock);
    return record;
}

void registry_progress(struct registry *registry, struct record *record, size_t done)
{
    if (!record) return;
    pthread_mutex_lock(&registry->lock);
    if (record->state == RECORD_WAITING) record->state = RECORD_READING;
    record->read = (uint32_t)done;
    pthread_mutex_unlock(&registry->lock);
}

void registry_token(struct registry *registry, struct record *record)
{
    if (!record) return;
    pthread_mutex_lock(&registry->lock);
    record->state = RECORD_ANSWERING;
    record->read = record->prompt_tokens;
    record->answer_tokens++;
    pthread_mutex_unlock(&registry->lock);
}

void registry_end(struct registry *registry, struct record *record, const mf_request_result *result)
{
    if (!record) return;
    pthread_mutex_lock(&registry->lock);
    if (--record->left == 0) record->state = RECORD_ENDED;
    record->result = *result;
    record->result.stop = NULL; /* borrowed from the request */
    pthread_mutex_unlock(&registry->lock);
}

/* The oldest ones that have ended are forgotten, and those that were refused. */
static void forget_old(struct registry *registry)
{
    struct record **at = &registry->records;
    size_t ended = 0;

    while (*at) {
        struct record *record = *at;
        bool refused = record->released && record->result.finish == MF_FINISH_NONE;
        ended += record->released && !refused;
        if (!record->released || (!refused && ended <= RECENT_MAX)) {
            at = &record->next;
            continue;
        }
        *at = record->next;
        free(record);
    }
}

void registry_release(struct registry *registry, struct record *record)
{
    if (!record) return;
    pthread_mutex_lock(&registry->lock);
    record->state = RECORD_ENDED;
    record->released = true;
    registry->active--;
    forget_old(registry);
    pthread_mutex_unlock(&registry->lock);
}

size_t registry_active(struct registry *registry)
{
    pthread_mutex_lock(&registry->lock);
    size_t active = registry->active;
    pthread_mutex_unlock(&registry->lock);
    return active;
}

const char *finish_name(mf_finish finish)
{
    static const char *const names[] = {
        [MF_FINISH_NONE] = "none",           [MF_FINISH_END] = "end",
        [MF_FINISH_STOP] = "stop",           [MF_FINISH_LENGTH] = "length",
        [MF_FINISH_CANCELLED] = "cancelled", [MF_FINISH_FAILED] = "failed",
    };

    return names[finish];
}

static json_t *record_json_new(const struct record *record, double now)
{
    static const char *const states[] = { "waiting", "reading", "answering", "ended" };
    const mf_request_result *result = &record->result;
    bool ended = record->state == RECORD_ENDED;
    char why[256] = "", client[20];

    snprintf(client, sizeof client, "%016llx", (unsigned long long)record->client);
    if (result->finish != MF_FINISH_NONE) mf_resumed_explain(why, sizeof why, &result->cached);
    json_t *cached = json_pack("{s:i, s:i, s:i, s:s}", "matched", (int)result->cached.matched,
                               "resumed", (int)result->cached.resumed, "replayed",
                               (int)result->cached.replayed, "why", why);
    return json_pack("{s:s, s:s, s:s, s:s, s:i, s:i, s:i, s:o, s:f, s:f, s:f, s:s, s:I, s:f}", "id",
                     record->id, "dialect", record->api, "client", client, "state",
                     states[record->state], "prompt_tokens", (int)record->prompt_tokens, "read",
                     (int)record->read, "answer_tokens", (int)record->answer_tokens, "cached",
                     cached, "wait_s", result->wait_seconds, "prompt_s", result->prompt_seconds,
                     "answer_s", result->answer_seconds, "finish",
                     ended ? finish_name(result->finish) : "", "started",
                     (json_int_t)record->started, "age_s", now - record->begun);
}

static void add_cache(json_t *out, const struct serve *serve)
{
    mf_model_statistics model = MF_MODEL_STATISTICS_INIT;

    if (mf_model_stats(serve->model, &model, NULL) != MF_OK) return;
    json_object_set_new(
        out, "cache",
        json_pack("{s:s, s:I, s:i, s:i, s:I, s:I, s:I, s:I}", "mode", serve->options.cache, "bytes",
                  (json_int_t)model.cache_bytes, "pages", (int)model.cache_pages, "checkpoints",
                  (int)model.cache_checkpoints, "requests", (json_int_t)model.cache_requests,
                  "asked", (json_int_t)model.cache_asked_tokens, "matched",
                  (json_int_t)model.cache_matched_tokens, "resumed",
                  (json_int_t)model.cache_resumed_tokens));
}

/* What the scheduler's steps are now. */
static void add_batch(json_t *out, const struct serve *serve)
{
    mf_scheduler_statistics steps = MF_SCHEDULER_STATISTICS_INIT;

    if (mf_scheduler_stats(serve->scheduler, &steps, NULL) != MF_OK) return;
    uint32_t rows = steps.last_decode_rows + steps.last_prompt_rows;
    double seconds = steps.last_step_seconds;
    json_object_set_new(out, "batch",
                        json_pack("{s:i, s:f, s:f, s:i, s:i}", "rows", (int)rows, "step_ms",
                                  seconds * 1000, "tokens_per_second",
                                  seconds > 0 ? rows / seconds : 0.0, "running", (int)steps.running,
                                  "parked", (int)steps.parked));
}

void registry_reply(struct serve *serve, struct exchange *exchange)
{
    struct registry *registry = serve->registry;
    json_t *running = json_array(), *waiting = json_array(), *recent = json_array();
    uint32_t owner = guard_owner(serve, exchange);
    size_t others = 0;
    double now = clock_seconds();

    pthread_mutex_lock(&registry->lock);
    for (const struct record *record = registry->records; record; record = record->next) {
        if (record->owner != owner) {
            others += record->state != RECORD_ENDED;
            continue;
        }
        json_t *list = record->state == RECORD_ENDED     ? recent
                       : record->state == RECORD_WAITING ? waiting
                                                         : running;
        json_array_append_new(list, record_json_new(record, now));
    }
    pthread_mutex_unlock(&registry->lock);
    json_t *all = json_pack("{s:o, s:o, s:o, s:I}", "running", running, "waiting", waiting,
                            "recent", recent, "others", (json_int_t)others);
    add_batch(all, serve);
    add_cache(all, serve);
    reply_json(exchange, 200, all);
}
