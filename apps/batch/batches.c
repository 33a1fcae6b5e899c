/* batches.c: the thread that runs batches; their routes are in batches_routes.c. */
#include "batch/batches_internal.h"

#include "batch/batch_run.h"
#include "common/basics.h"
#include "batch/files.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { PARALLEL_MAX = 8 };

/* The batch that runs now. */
struct running {
    struct batches *batches;
    json_t *record;
    char owner[33];
    bool expired;
};

void batch_set_status(json_t *record, const char *status)
{
    char when[32];

    json_object_set_new(record, "status", json_string(status));
    snprintf(when, sizeof when, "%s_at", status);
    json_object_set_new(record, when, json_integer((json_int_t)time(NULL)));
}

static const char *text_of(const json_t *record, const char *name)
{
    const char *text = json_string_value(json_object_get(record, name));

    return text ? text : "";
}

bool batch_has_ended(const json_t *record)
{
    static const char *const ends[] = { "completed", "failed", "expired", "cancelled" };

    for (size_t i = 0; i < COUNT_OF(ends); i++)
        if (strcmp(text_of(record, "status"), ends[i]) == 0) return true;
    return false;
}

/* ------------------------------------------------------------------------ running */

static void note_counts(struct batches *batches, const struct batch_counts *counts)
{
    pthread_mutex_lock(&batches->lock);
    batches->total = counts->total;
    batches->failed = counts->failed;
    batches->completed = counts->done - counts->failed;
    pthread_mutex_unlock(&batches->lock);
}

void batches_interrupt(struct batches *batches)
{
    uint64_t one = 1;

    if (write(batches->stop, &one, sizeof one) < 0) return; /* it is readable already */
}

static void take_progress(void *user, const struct batch_counts *counts)
{
    struct running *running = user;
    json_int_t expires = json_integer_value(json_object_get(running->record, "expires_at"));

    note_counts(running->batches, counts);
    running->expired = time(NULL) > expires;
    if (running->expired) batches_interrupt(running->batches);
}

static mf_status begin_lines(void *user, const struct batch_counts *counts, mf_error *why)
{
    struct running *running = user;
    struct batches *batches = running->batches;
    mf_status status = MF_OK;

    note_counts(batches, counts);
    pthread_mutex_lock(&batches->lock);
    if (!batches->cancelling && strcmp(text_of(running->record, "status"), "in_progress") != 0) {
        batch_set_status(running->record, "in_progress");
        status = state_put(batches->serve->store, running->record, why);
    }
    pthread_mutex_unlock(&batches->lock);
    return status;
}

/* BATCH.data and BATCH.failed, which become files of their own. */
static const struct product {
    const char *ending, *member, *what;
    char letter;
} products[] = { { ".data", "output_file_id", "output", 'o' },
                 { ".failed", "error_file_id", "error", 'e' } };

/* The name of the file follows from that of the batch, so that it is found after a kill. */
static void name_product(char out[STATE_NAME_CAPACITY], const json_t *record,
                         const struct product *product)
{
    snprintf(out, STATE_NAME_CAPACITY, "file-%.24s%c", text_of(record, "id") + strlen("batch_"),
             product->letter);
}

/* Readable by this user alone.  What a server published that was killed before it said so goes
 * back: its lines are answered already. */
static void prepare_product(const struct running *running, const struct product *product)
{
    struct state_store *store = running->batches->serve->store;
    char own[STATE_PATH_CAPACITY], made[STATE_PATH_CAPACITY], name[STATE_NAME_CAPACITY];

    name_product(name, running->record, product);
    state_path(own, store, text_of(running->record, "id"), product->ending);
    state_path(made, store, name, ".data");
    if (access(own, F_OK) == 0 || rename(made, own) == 0) return;
    int fd = open(own, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd >= 0) close(fd);
}

static void publish(const struct running *running, const struct product *product)
{
    struct state_store *store = running->batches->serve->store;
    char from[STATE_PATH_CAPACITY], to[STATE_PATH_CAPACITY], name[STATE_NAME_CAPACITY];
    char filename[STATE_NAME_CAPACITY + 16];
    struct stat info;

    state_path(from, store, text_of(running->record, "id"), product->ending);
    if (stat(from, &info) != 0) return;
    if (info.st_size == 0) {
        unlink(from);
        return;
    }
    name_product(name, running->record, product);
    state_path(to, store, name, ".data");
    if (rename(from, to) != 0) return;
    snprintf(filename, sizeof filename, "%s_%s.jsonl", text_of(running->record, "id"),
             product->what);
    json_t *file =
        files_record_new(name, running->owner, filename, "batch_output", (uint64_t)info.st_size);
    if (state_put(store, file, NULL) == MF_OK)
        json_object_set_new(running->record, product->member, json_string(name));
    json_decref(file);
}

static void set_counts(json_t *record, const struct batch_counts *counts)
{
    json_object_set_new(record, "request_counts",
                        json_pack("{s:I, s:I, s:I}", "total", (json_int_t)counts->total,
                                  "completed", (json_int_t)(counts->done - counts->failed),
                                  "failed", (json_int_t)counts->failed));
}

static void set_errors(json_t *record, const mf_error *why)
{
    json_object_set_new(record, "errors",
                        json_pack("{s:s, s:[{s:s, s:s, s:n, s:n}]}", "object", "list", "data",
                                  "code", "invalid_file", "message", why->text, "line", "param"));
}

/* False: it could not be written down. */
static bool end_batch(struct running *running, const struct batch_counts *counts, const char *how)
{
    struct batches *batches = running->batches;
    struct state_store *store = batches->serve->store;

    set_counts(running->record, counts);
    batch_set_status(running->record, "finalizing");
    for (size_t i = 0; i < COUNT_OF(products); i++) publish(running, &products[i]);
    batch_set_status(running->record, how);
    pthread_mutex_lock(&batches->lock);
    json_t *told = state_get_new(store, text_of(running->record, "id"), NULL);
    json_t *when = json_object_get(told, "cancelling_at");
    if (when) json_object_set(running->record, "cancelling_at", when);
    json_decref(told);
    bool done = state_put(store, running->record, NULL) == MF_OK;
    batches->current[0] = '\0';
    pthread_mutex_unlock(&batches->lock);
    return done;
}

static bool is_cancelling(struct batches *batches)
{
    pthread_mutex_lock(&batches->lock);
    bool cancelling = batches->cancelling;
    pthread_mutex_unlock(&batches->lock);
    return cancelling;
}

/* Whether it has ended, and others may follow. */
static bool run_batch(struct batches *batches, json_t *record)
{
    struct running running = { .batches = batches, .record = record };
    struct state_store *store = batches->serve->store;
    char input[STATE_PATH_CAPACITY], output[STATE_PATH_CAPACITY], failures[STATE_PATH_CAPACITY];
    struct batch_counts counts = { 0 };
    mf_error why = { .text = "" };
    bool stopped = false;

    snprintf(running.owner, sizeof running.owner, "%s", text_of(record, "owner"));
    state_path(input, store, text_of(record, "input_file_id"), ".data");
    state_path(output, store, text_of(record, "id"), ".data");
    state_path(failures, store, text_of(record, "id"), ".failed");
    for (size_t i = 0; i < COUNT_OF(products); i++) prepare_product(&running, &products[i]);
    struct batch_options options = {
        .serve = batches->serve,
        .input = input,
        .output = output,
        .failures = failures,
        .path = text_of(record, "endpoint"),
        .parallel = min_size(PARALLEL_MAX, batches->serve->options.parallel),
        .background = true,
        .stop = batches->stop,
        .ready = begin_lines,
        .progress = take_progress,
        .user = &running,
    };
    mf_status status = batch_run(&counts, &stopped, &options, &why);
    note_counts(batches, &counts);
    if (status != MF_OK) {
        set_errors(record, &why);
        return end_batch(&running, &counts, "failed");
    }
    if (!stopped) return end_batch(&running, &counts, "completed");
    if (running.expired) return end_batch(&running, &counts, "expired");
    if (is_cancelling(batches)) return end_batch(&running, &counts, "cancelled");
    return false; /* the server ends: the next one goes on */
}

/* ------------------------------------------------------------------------- thread */

/* The oldest batch that has not ended; NULL: there is none. */
static json_t *next_batch_new(struct batches *batches)
{
    json_t *all = state_list_new(batches->serve->store, "batch_", NULL), *found = NULL;

    for (size_t i = json_array_size(all); i-- > 0 && !found;) {
        json_t *record = json_array_get(all, i);
        if (!batch_has_ended(record)) found = json_incref(record);
    }
    json_decref(all);
    return found;
}

/* Makes it the current one, of which batches_cancel tells `stop`.  NULL: the server ends. */
static json_t *begin_batch_new(struct batches *batches, const char *name)
{
    uint64_t count;

    pthread_mutex_lock(&batches->lock);
    bool goes_on = !batches->closing;
    if (goes_on && read(batches->stop, &count, sizeof count) < 0) count = 0; /* it was not set */
    snprintf(batches->current, sizeof batches->current, "%s", name);
    json_t *record = goes_on ? state_get_new(batches->serve->store, name, NULL) : NULL;
    batches->cancelling = record && strcmp(text_of(record, "status"), "cancelling") == 0;
    batches->total = batches->completed = batches->failed = 0;
    bool cancelling = batches->cancelling;
    pthread_mutex_unlock(&batches->lock);
    if (cancelling) batches_interrupt(batches);
    return record;
}

static bool wait_for_batch(struct batches *batches)
{
    pthread_mutex_lock(&batches->lock);
    batches->current[0] = '\0';
    while (!batches->closing && !batches->changed)
        pthread_cond_wait(&batches->wake, &batches->lock);
    batches->changed = false;
    bool goes_on = !batches->closing;
    pthread_mutex_unlock(&batches->lock);
    return goes_on;
}

static void *run_batches(void *user)
{
    struct batches *batches = user;

    while (wait_for_batch(batches)) {
        json_t *record;
        while ((record = next_batch_new(batches))) {
            json_t *current = begin_batch_new(batches, text_of(record, "id"));
            bool ended = current && run_batch(batches, current);
            json_decref(current);
            json_decref(record);
            if (!ended) break;
        }
    }
    return NULL;
}

mf_status batches_start(struct batches **out, struct serve *serve, mf_error *why)
{
    struct batches *batches = calloc(1, sizeof *batches);

    *out = NULL;
    if (!batches) return fail_memory(why, sizeof *batches);
    batches->serve = serve;
    pthread_mutex_init(&batches->lock, NULL);
    pthread_cond_init(&batches->wake, NULL);
    batches->stop = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (batches->stop >= 0 && pthread_create(&batches->thread, NULL, run_batches, batches) == 0) {
        *out = batches;
        return MF_OK;
    }
    if (batches->stop >= 0) close(batches->stop);
    free(batches);
    return fail(why, MF_ERR_MEMORY, "the thread of batches cannot be started");
}

void batches_wake(struct batches *batches)
{
    if (!batches) return;
    pthread_mutex_lock(&batches->lock);
    batches->changed = true;
    pthread_cond_signal(&batches->wake);
    pthread_mutex_unlock(&batches->lock);
}

void batches_stop(struct batches *batches)
{
    if (!batches) return;
    pthread_mutex_lock(&batches->lock);
    batches->closing = true;
    pthread_cond_signal(&batches->wake);
    pthread_mutex_unlock(&batches->lock);
    batches_interrupt(batches);
    pthread_join(batches->thread, NULL);
}

void batches_free(struct batches *batches)
{
    if (!batches) return;
    pthread_cond_destroy(&batches->wake);
    pthread_mutex_destroy(&batches->lock);
    close(batches->stop);
    free(batches);
}

bool batches_use_file(struct batches *batches, const char *name)
{
    bool used = false;

    if (!batches) return false;
    json_t *all = state_list_new(batches->serve->store, "batch_", NULL);
    for (size_t i = 0; i < json_array_size(all); i++) {
        const json_t *record = json_array_get(all, i);
        used |= !batch_has_ended(record) && strcmp(text_of(record, "input_file_id"), name) == 0;
    }
    json_decref(all);
    return used;
}
