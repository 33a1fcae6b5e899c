#include "serve/api.h"
#include "serve/ask.h"
#include "batch/batches_internal.h"
#include "batch/files.h"
#include "serve/guard.h"
#include "serve/reply.h"

#include <string.h>
#include <time.h>

enum { DAY_SECONDS = 86400 };

static void reply_or_fail(struct exchange *exchange, json_t *value, const struct failure *failure)
{
    if (value)
        reply_json(exchange, 200, files_public_new(value));
    else
        failure_reply(exchange, DIALECT_OPENAI, failure);
}

/* ------------------------------------------------------------------------- create */

static const struct field_rule rules[] = {
    { "completion_window", FIELD_HONOURED, NULL }, { "endpoint", FIELD_HONOURED, NULL },
    { "input_file_id", FIELD_HONOURED, NULL },     { "metadata", FIELD_HONOURED, NULL },
    { "output_expires_after", FIELD_NOTED, NULL },
};

static bool check_input(struct serve *serve, const char *file, const char *owner,
                        struct failure *failure)
{
    json_t *record = NULL;

    if (file && strncmp(file, "file-", 5) == 0) record = state_get_new(serve->store, file, owner);
    json_decref(record);
    if (record) return true;
    return refuse_code(failure, "invalid_value", "input_file_id",
                       "\"input_file_id\" is \"%.60s\", which is no file of yours",
                       file ? file : "");
}

static json_t *record_new(const char *file, const char *endpoint, const char *owner,
                          json_t *metadata)
{
    char name[STATE_NAME_CAPACITY];
    json_int_t now = (json_int_t)time(NULL);

    state_new_name(name, "batch_");
    return json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:I, s:I, s:{s:i, s:i, s:i}, s:O?}", "id",
                     name, "owner", owner, "object", "batch", "endpoint", endpoint, "input_file_id",
                     file, "completion_window", "24h", "status", "validating", "created_at", now,
                     "expires_at", now + DAY_SECONDS, "request_counts", "total", 0, "completed", 0,
                     "failed", 0, "metadata", metadata);
}

static json_t *create_new(struct serve *serve, struct ask *ask, const char *owner,
                          struct failure *failure)
{
    const char *file = NULL, *endpoint = NULL, *window = NULL;
    mf_error why = { .text = "" };

    if (!ask_check_fields(ask, rules, sizeof rules / sizeof rules[0], failure) ||
        !read_text(&file, ask->body, "input_file_id", failure) ||
        !read_text(&endpoint, ask->body, "endpoint", failure) ||
        !read_text(&window, ask->body, "completion_window", failure) ||
        !check_input(serve, file, owner, failure))
        return NULL;
    if (!endpoint || !api_find(endpoint)) {
        refuse_code(failure, "invalid_value", "endpoint",
                    "\"endpoint\" is \"%.60s\", whose requests cannot be answered in a batch",
                    endpoint ? endpoint : "");
        return NULL;
    }
    if (window && strcmp(window, "24h") != 0) {
        refuse_code(failure, "invalid_value", "completion_window",
                    "\"completion_window\" is not \"24h\"");
        return NULL;
    }
    json_t *record = record_new(file, endpoint, owner, json_object_get(ask->body, "metadata"));
    mf_status status =
        state_has_room(serve->store, json_dumpb(record, NULL, 0, JSON_COMPACT), &why);
    if (status == MF_OK && state_put(serve->store, record, &why) == MF_OK) return record;
    json_decref(record);
    if (status == MF_ERR_MEMORY)
        refuse(failure, FAILURE_TOO_LARGE, NULL, "%s", why.text);
    else
        refuse_error(failure, &why);
    return NULL;
}

void batches_create(struct serve *serve, struct exchange *exchange)
{
    struct failure failure = { .kind = FAILURE_ENGINE };
    struct ask ask;
    char owner[33];
    json_t *record = NULL;

    if (!serve->store) {
        refuse_no_store(&failure);
        failure_reply(exchange, DIALECT_OPENAI, &failure);
        return;
    }
    files_owner(owner, serve, guard_owner(serve, exchange));
    if (ask_open(&ask, serve, exchange, DIALECT_OPENAI, &failure))
        record = create_new(serve, &ask, owner, &failure);
    ask_close(&ask);
    if (record) batches_wake(serve->batches);
    reply_or_fail(exchange, record, &failure);
}

/* ---------------------------------------------------------------------- list, one */

/* The counts of the running batch are newer than its record. */
static void freshen(struct batches *batches, json_t *record)
{
    const char *name = json_string_value(json_object_get(record, "id"));

    pthread_mutex_lock(&batches->lock);
    if (strcmp(batches->current, name) == 0 && !batch_has_ended(record))
        json_object_set_new(record, "request_counts",
                            json_pack("{s:I, s:I, s:I}", "total", (json_int_t)batches->total,
                                      "completed", (json_int_t)batches->completed, "failed",
                                      (json_int_t)batches->failed));
    pthread_mutex_unlock(&batches->lock);
}

static json_t *find_record(struct serve *serve, struct exchange *exchange, const char *ending,
                           struct failure *failure)
{
    char name[64] = "", owner[33];
    json_t *record = NULL;

    if (!serve->store) {
        refuse_no_store(failure);
        return NULL;
    }
    files_owner(owner, serve, guard_owner(serve, exchange));
    if (files_name(name, exchange, "/batches/", ending) && strncmp(name, "batch_", 6) == 0)
        record = state_get_new(serve->store, name, owner);
    if (record)
        freshen(serve->batches, record);
    else
        refuse(failure, FAILURE_NOT_FOUND, NULL, "No batch found with id '%.60s'.", name);
    return record;
}

void batches_list(struct serve *serve, struct exchange *exchange)
{
    struct failure failure;
    char owner[33];
    json_t *list, *record;
    size_t i;

    if (!serve->store) {
        refuse_no_store(&failure);
        failure_reply(exchange, DIALECT_OPENAI, &failure);
        return;
    }
    files_owner(owner, serve, guard_owner(serve, exchange));
    list = state_list_new(serve->store, "batch_", owner);
    json_array_foreach(list, i, record)
    {
        freshen(serve->batches, record);
    }
    files_reply_list(exchange, list);
}

void batches_one(struct serve *serve, struct exchange *exchange)
{
    struct failure failure;
    json_t *record = find_record(serve, exchange, "", &failure);

    reply_or_fail(exchange, record, &failure);
}

/* ------------------------------------------------------------------------- cancel */

/* Changes the record to what it is then, which may be another than the caller has read. */
static void cancel(struct batches *batches, json_t *record)
{
    const char *name = json_string_value(json_object_get(record, "id"));

    pthread_mutex_lock(&batches->lock);
    json_t *now = state_get_new(batches->serve->store, name, NULL);
    if (now && !batch_has_ended(now)) {
        if (!json_object_get(now, "cancelling_at")) {
            batch_set_status(now, "cancelling");
            state_put(batches->serve->store, now, NULL);
        }
        if (strcmp(batches->current, name) == 0) {
            batches->cancelling = true;
            batches_interrupt(batches);
        }
    }
    pthread_mutex_unlock(&batches->lock);
    if (now) json_object_update(record, now);
    json_decref(now);
    batches_wake(batches);
}

void batches_cancel(struct serve *serve, struct exchange *exchange)
{
    struct failure failure;
    json_t *record = find_record(serve, exchange, "/cancel", &failure);

    if (record && !batch_has_ended(record)) {
        cancel(serve->batches, record);
        freshen(serve->batches, record);
    }
    reply_or_fail(exchange, record, &failure);
}
