/* requests: clients of several threads that submit, cancel, close and are parked at random moments:
 * every request ends once, with the answer that it has alone or with a reason, and all memory comes
 * back. */
#include "support/test.h"

#include "support/random_text.h"
#include "support/tiny_engine.h"

#include "api/request.h"
#include "base/disk.h"

#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { FACTS = 10, PROMPT_MAX = 260, HEAD = 150, ANSWER = 24, CONTEXT = 400 };

/* In callbacks and threads, which an assertion of CMocka must not leave. */
static void require(bool holds, const char *what)
{
    if (holds) return;
    fprintf(stderr, "%s\n", what);
    abort();
}

#define REQUIRE(holds) require((holds), #holds)

/* ---------------------------------------------------------------------- facts */

/* A prompt and the greedy answer that it has alone. */
struct fact {
    int32_t prompt[PROMPT_MAX], answer[ANSWER];
    uint32_t count;
};

static struct fact facts[FACTS];

static int32_t largest(const float *logits, uint32_t count)
{
    uint32_t best = 0;
    for (uint32_t i = 1; i < count; i++)
        if (logits[i] > logits[best]) best = i;
    return (int32_t)best;
}

/* Half of the prompts have a long head in common. */
static void find_facts(struct tiny_engine *t)
{
    struct random_text random = { .state = 11 };
    uint32_t vocab_size = t->tiny.shape.vocab_size;
    for (uint32_t f = 0; f < FACTS; f++) {
        struct fact *fact = &facts[f];
        struct random_text head = { .state = 5 };
        fact->count = f % 2 ? 1 + random_below(&random, PROMPT_MAX)
                            : HEAD + 1 + random_below(&random, PROMPT_MAX - HEAD);
        for (uint32_t i = 0; i < fact->count; i++)
            fact->prompt[i] = (int32_t)random_below(i < HEAD && f % 2 == 0 ? &head : &random, 50);
        mf_sequence *sequence = tiny_sequence(t, 0);
        tiny_feed(sequence, fact->prompt, fact->count);
        for (int i = 0; i < ANSWER; i++) {
            fact->answer[i] = largest(mf_sequence_logits(sequence), vocab_size);
            tiny_feed_as(sequence, MF_PHASE_GENERATED, &fact->answer[i], 1);
        }
        mf_sequence_close(sequence);
    }
}

/* --------------------------------------------------------------------- asking */

struct storm {
    struct tiny_engine t;
    mf_scheduler *scheduler;
    bool compare; /* answers with those of the facts */
    atomic_uint submitted, answered, cancelled, failed, busy, parked, ended;
};

struct ask {
    struct storm *storm;
    const struct fact *fact;
    mf_request *request;
    uint32_t stop_after, cancel_at; /* tokens; position of the prompt; 0: never */
    uint32_t tokens, limit;
    size_t progress;
    struct ask *child; /* submitted when this one ends */
    atomic_uint ended;
    unsigned place; /* among those that have ended, from 0 */
};

static mf_status submit(struct ask *ask, mf_error *why);

static void see_progress(void *user, size_t done, size_t total)
{
    struct ask *ask = user;
    REQUIRE(done >= ask->progress && done <= total && total == ask->fact->count);
    ask->progress = done;
    if (ask->cancel_at && done >= ask->cancel_at) mf_request_cancel(ask->request);
}

static bool see_token(void *user, const mf_request_token *token)
{
    struct ask *ask = user;
    REQUIRE(atomic_load(&ask->ended) == 0 && ask->tokens < ask->limit);
    if (ask->storm->compare) REQUIRE(token->token == ask->fact->answer[ask->tokens]);
    ask->tokens++;
    return ask->stop_after == 0 || ask->tokens < ask->stop_after;
}

static void see_end(void *user, const mf_request_result *result)
{
    struct ask *ask = user;
    struct storm *storm = ask->storm;
    REQUIRE(result->answer_tokens == ask->tokens);
    if (result->finish == MF_FINISH_LENGTH) {
        REQUIRE(ask->tokens == ask->limit && result->error.status == MF_OK);
        atomic_fetch_add(&storm->answered, 1);
    } else if (result->finish == MF_FINISH_CANCELLED) {
        REQUIRE(result->error.status == MF_ERR_CANCELLED);
        atomic_fetch_add(&storm->cancelled, 1);
    } else {
        REQUIRE(result->finish == MF_FINISH_FAILED && result->error.status != MF_OK);
        atomic_fetch_add(&storm->failed, 1);
    }
    atomic_fetch_add(&storm->parked, result->parked);
    if (ask->child && submit(ask->child, NULL) != MF_OK) ask->child->storm = NULL;
    ask->place = atomic_fetch_add(&storm->ended, 1);
    REQUIRE(atomic_fetch_add(&ask->ended, 1) == 0);
}

static mf_status submit(struct ask *ask, mf_error *why)
{
    mf_request_options options = MF_REQUEST_OPTIONS_INIT;
    static const uint32_t breakpoint = HEAD;
    options.tokens = ask->fact->prompt;
    options.token_count = ask->fact->count;
    options.max_tokens = ask->limit;
    options.ignore_end = true;
    options.progress = see_progress;
    options.token = see_token;
    options.ended = see_end;
    options.user = ask;
    options.client = ask->limit % 5;
    options.priority = ask->limit % 3 ? MF_PRIORITY_INTERACTIVE : MF_PRIORITY_BACKGROUND;
    options.breakpoints = &breakpoint;
    options.breakpoint_count = 1;
    mf_status status = mf_request_submit(&ask->request, ask->storm->scheduler, &options, why);
    atomic_fetch_add(status == MF_OK ? &ask->storm->submitted : &ask->storm->busy, 1);
    return status;
}

static struct ask *ask_new(struct storm *storm, struct random_text *random)
{
    struct ask *ask = calloc(1, sizeof *ask);
    REQUIRE(ask);
    ask->storm = storm;
    ask->fact = &facts[random_below(random, FACTS)];
    ask->limit = 1 + random_below(random, ANSWER);
    if (random_below(random, 6) == 0) ask->stop_after = 1 + random_below(random, ask->limit);
    if (random_below(random, 6) == 0) ask->cancel_at = 1 + random_below(random, ask->fact->count);
    return ask;
}

static void ask_free(struct ask *ask)
{
    if (!ask) return;
    if (ask->request) {
        mf_request_close(ask->request);
        REQUIRE(atomic_load(&ask->ended) == 1);
    }
    ask_free(ask->child);
    free(ask);
}

/* --------------------------------------------------------------------- clients */

enum { CLIENTS = 4, EACH = 40, OPEN = 24 };

struct client {
    struct storm *storm;
    struct random_text random;
    pthread_t thread;
};

static void *run_client(void *user)
{
    struct client *client = user;
    struct random_text *random = &client->random;
    struct ask *open[OPEN] = { NULL };
    for (int i = 0; i < EACH; i++) {
        struct ask **place = &open[random_below(random, OPEN)];
        ask_free(*place); /* in the middle of whatever it does */
        *place = ask_new(client->storm, random);
        if (random_below(random, 8) == 0) (*place)->child = ask_new(client->storm, random);
        mf_error why = { 0 };
        mf_status status = submit(*place, &why);
        REQUIRE(status == MF_OK || status == MF_ERR_BUSY);
        if (random_below(random, 4) == 0) usleep(random_below(random, 3000));
        struct ask *other = open[random_below(random, OPEN)];
        if (other && other->request && random_below(random, 3) == 0)
            mf_request_cancel(other->request);
        if (other && other->request && random_below(random, 3) == 0)
            mf_request_wait(other->request, NULL, NULL);
    }
    for (int i = 0; i < OPEN; i++) ask_free(open[i]);
    return NULL;
}

static void storm_open(struct storm *storm, const struct tiny_shape *shape,
                       const mf_model_options *model, uint32_t waiting, const char *park)
{
    *storm = (struct storm){ .compare = true };
    mf_engine_options engine = { .struct_size = sizeof engine, .thread_count = 1 };
    mf_scheduler_options scheduler = MF_SCHEDULER_OPTIONS_INIT;
    mf_error why = { 0 };
    tiny_engine_open_as(&storm->t, shape, &engine, model);
    find_facts(&storm->t);
    scheduler.parallel = 64;
    scheduler.waiting = waiting;
    scheduler.park_directory = park;
    tiny_must(mf_scheduler_open(&storm->scheduler, storm->t.model, &scheduler, &why), &why);
}

static void storm_close(struct storm *storm)
{
    mf_scheduler_close(storm->scheduler);
    assert_int_equal(storm->ended, storm->submitted);
    assert_int_equal(storm->answered + storm->cancelled + storm->failed, storm->ended);
    if (storm->t.model->prefixes) prefix_tree_clear(storm->t.model->prefixes);
    struct state_pool_sizes sizes = state_pool_sizes(&storm->t.model->room.pool);
    assert_int_equal(sizes.held_bytes, 0);
    tiny_engine_close(&storm->t);
}

static void run_storm(struct storm *storm, uint64_t seed)
{
    struct client clients[CLIENTS];
    for (uint32_t i = 0; i < CLIENTS; i++) {
        clients[i] = (struct client){ .storm = storm, .random.state = seed * 100 + i };
        assert_int_equal(pthread_create(&clients[i].thread, NULL, run_client, &clients[i]), 0);
    }
    for (uint32_t i = 0; i < CLIENTS; i++) pthread_join(clients[i].thread, NULL);
    print_message("%u requests: %u answered, %u cancelled, %u failed, %u busy, %u times parked\n",
                  storm->submitted, storm->answered, storm->cancelled, storm->failed, storm->busy,
                  storm->parked);
}

static struct tiny_shape shape_of(bool hybrid)
{
    struct tiny_shape shape = tiny_standard;
    shape.interval = hybrid ? 2 : 1;
    return shape;
}

static void every_request_ends_once_and_gives_its_memory_back(void **state)
{
    (void)state;
    static const char *const caches[] = { NULL, "exact", "reuse" };
    uint32_t answered = 0, cancelled = 0;
    for (uint32_t i = 0; i < 12; i++) {
        struct storm *storm = calloc(1, sizeof *storm);
        struct tiny_shape shape = shape_of(i % 2);
        mf_model_options model = { .struct_size = sizeof model,
                                   .context_length = CONTEXT,
                                   .sequences = i < 6 ? 64 : 2,
                                   .cache = caches[i % 3] };
        storm_open(storm, &shape, &model, i % 4 == 3 ? 20 : 0, NULL);
        if (i >= 6)
            state_pool_set_limit(
                &storm->t.model->room.pool,
                2 * sequence_pool_bytes(&storm->t.model->room.pool.shape, CONTEXT));
        run_storm(storm, i);
        assert_int_equal(storm->failed, 0);
        answered += storm->answered;
        cancelled += storm->cancelled;
        storm_close(storm);
        free(storm);
    }
    assert_true(answered > 100 && cancelled > 100);
}

static mf_request_result wait_for(struct ask *ask)
{
    mf_request_result result = MF_REQUEST_RESULT_INIT;
    mf_request_wait(ask->request, &result, NULL);
    return result;
}

/* Asks of one kind, without accidents. */
static void make_asks(struct ask *asks, size_t count, struct storm *storm, uint32_t fact,
                      uint32_t limit)
{
    memset(asks, 0, count * sizeof *asks);
    for (size_t i = 0; i < count; i++)
        asks[i] = (struct ask){ .storm = storm, .fact = &facts[fact], .limit = limit };
}

/* -------------------------------------------------------------------- failures */

/* As few slots as there may be: experts are read in every step. */
static void make_small(const struct tiny_engine *t)
{
    struct expert_store_sizes sizes = expert_store_sizes(t->model->experts);
    uint64_t slot = sizes.slot_bytes / sizes.slots;
    uint64_t least = slot * (t->model->model.config.experts_per_token + 2);
    for (mf_status status = MF_ERR_MEMORY; status != MF_OK; least += slot / 4)
        status = expert_store_set_budget(t->model->experts, least, NULL);
}

/* An allocation fails, or every nth read (1: all of them): a request that it meets ends with a
 * reason, the others are answered as if nothing had happened. */
static uint32_t fail_storm(bool reads, uint64_t nth, bool *fired)
{
    struct storm *storm = calloc(1, sizeof *storm);
    struct tiny_shape shape = shape_of(true);
    struct ask asks[6];
    mf_model_options model = {
        .struct_size = sizeof model, .context_length = CONTEXT, .sequences = 6, .cache = "exact"
    };
    assert_non_null(storm);
    storm_open(storm, &shape, &model, 0, NULL);
    struct tiny_engine *t = &storm->t;
    if (reads) make_small(t);
    for (size_t i = 0; i < COUNT_OF(asks); i++) make_asks(&asks[i], 1, storm, (uint32_t)i, ANSWER);
    pthread_mutex_lock(&t->engine->lock);
    atomic_store(&t->files.fail_every, reads ? nth : 0);
    if (!reads) failing_allocator_arm(&t->heap, nth);
    for (size_t i = 0; i < COUNT_OF(asks); i++)
        if (submit(&asks[i], NULL) != MF_OK) asks[i].request = NULL;
    pthread_mutex_unlock(&t->engine->lock);
    uint32_t failed = 0;
    for (size_t i = 0; i < COUNT_OF(asks); i++) {
        if (!asks[i].request) continue;
        mf_request_result result = wait_for(&asks[i]);
        assert_true(result.finish == MF_FINISH_LENGTH || result.finish == MF_FINISH_FAILED);
        if (result.finish == MF_FINISH_FAILED)
            assert_int_equal(result.error.status, reads ? MF_ERR_IO : MF_ERR_MEMORY);
        failed += result.finish == MF_FINISH_FAILED;
        mf_request_close(asks[i].request);
    }
    *fired = reads || failing_allocator_disarm(&t->heap);
    atomic_store(&t->files.fail_every, 0);
    if (!*fired) assert_int_equal(failed, 0);
    make_asks(asks, 1, storm, 0, ANSWER); /* and all goes on */
    assert_int_equal(submit(asks, NULL), MF_OK);
    assert_int_equal(wait_for(asks).finish, MF_FINISH_LENGTH);
    mf_request_close(asks[0].request);
    storm_close(storm);
    free(storm);
    return failed;
}

static void every_allocation_may_fail(void **state)
{
    bool fired = true;
    uint64_t nth = 1;
    (void)state;
    for (; fired; nth += 1 + nth / 8) fail_storm(false, nth, &fired);
    assert_true(nth > 50);
}

static void reads_may_fail(void **state)
{
    bool fired;
    (void)state;
    for (uint64_t nth = 2; nth < 300; nth += 1 + nth / 3) /* mostly a second attempt succeeds */
        fail_storm(true, nth, &fired);
    assert_int_equal(fail_storm(true, 1, &fired), 6);
}

/* ------------------------------------------------------------------- small pools */

/* The cache shares the last page, which is half full: the request needs a copy of it. */
static void a_request_that_just_fits_alone_is_answered(void **state)
{
    (void)state;
    for (int hybrid = 0; hybrid < 2; hybrid++) {
        struct storm storm;
        struct tiny_shape shape = shape_of(hybrid);
        struct ask ask;
        mf_model_options model = { .struct_size = sizeof model,
                                   .context_length = CONTEXT,
                                   .cache = "exact" };
        storm_open(&storm, &shape, &model, 0, NULL);
        struct state_pool *pool = &storm.t.model->room.pool;
        make_asks(&ask, 1, &storm, 0, ANSWER);
        assert_true(facts[0].count % 64 > 0);
        uint32_t pages = state_pages_for(facts[0].count + ANSWER - 1);
        state_pool_set_limit(pool, pages * state_block_bytes(&pool->shape, BLOCK_PAGE) +
                                       2 * (uint64_t)hybrid *
                                           state_block_bytes(&pool->shape, BLOCK_RECURRENT) +
                                       state_block_bytes(&pool->shape, BLOCK_LOGITS));
        mf_error why = { 0 };
        tiny_must(submit(&ask, &why), &why);
        mf_request_result result = wait_for(&ask);
        tiny_must(result.error.status, &result.error);
        assert_int_equal(result.finish, MF_FINISH_LENGTH);
        mf_request_close(ask.request);
        storm_close(&storm);
    }
}

/* Prompts that fit two at a time are not begun before there is room: none is parked. */
static void prompts_wait_for_room_and_are_not_parked(void **state)
{
    (void)state;
    struct storm storm;
    struct tiny_shape shape = shape_of(true);
    struct ask asks[12];
    mf_model_options model = {
        .struct_size = sizeof model, .context_length = CONTEXT, .sequences = 12, .chunk_rows = 16
    };
    storm_open(&storm, &shape, &model, 0, NULL);
    struct state_pool *pool = &storm.t.model->room.pool;
    state_pool_set_limit(pool, 2 * sequence_pool_bytes(&pool->shape, facts[0].count + ANSWER));
    make_asks(asks, COUNT_OF(asks), &storm, 0, ANSWER);
    for (size_t i = 0; i < COUNT_OF(asks); i++) assert_int_equal(submit(&asks[i], NULL), MF_OK);
    for (size_t i = 0; i < COUNT_OF(asks); i++) {
        assert_int_equal(wait_for(&asks[i]).finish, MF_FINISH_LENGTH);
        mf_request_close(asks[i].request);
    }
    assert_int_equal(storm.parked, 0);
    storm_close(&storm);
}

/* One client's many requests are in the queue when another one's comes. */
static void a_client_with_many_requests_is_passed(void **state)
{
    (void)state;
    enum { MANY = 100 };
    static struct ask asks[MANY + 1];
    struct storm storm;
    struct tiny_shape shape = shape_of(true);
    mf_model_options model = { .struct_size = sizeof model, .context_length = CONTEXT };
    storm_open(&storm, &shape, &model, 0, NULL);
    struct state_pool *pool = &storm.t.model->room.pool;
    state_pool_set_limit(pool, 2 * sequence_pool_bytes(&pool->shape, CONTEXT));
    make_asks(asks, MANY, &storm, 0, 20); /* interactive, of another client: see submit */
    make_asks(&asks[MANY], 1, &storm, 0, 22);
    pthread_mutex_lock(&storm.t.engine->lock); /* no step runs before all are there */
    for (size_t i = 0; i < MANY; i++) assert_int_equal(submit(&asks[i], NULL), MF_OK);
    assert_int_equal(submit(&asks[MANY], NULL), MF_OK);
    pthread_mutex_unlock(&storm.t.engine->lock);
    assert_int_equal(wait_for(&asks[MANY]).finish, MF_FINISH_LENGTH);
    assert_true(asks[MANY].place < 30);
    for (size_t i = 0; i <= MANY; i++) mf_request_close(asks[i].request);
    storm_close(&storm);
}

/* ---------------------------------------------------------------- long answers */

struct taken {
    int32_t tokens[2048];
    uint32_t count;
};

static bool take(void *user, const mf_request_token *token)
{
    struct taken *taken = user;
    taken->tokens[taken->count++] = token->token;
    return true;
}

/* A text that leaves an answer in its middle resumes at the net that lies there. */
static void a_long_answer_leaves_checkpoints(void **state)
{
    (void)state;
    enum { PROMPT = 20, EDITED = 1030, CONTEXT_LONG = 2048 };
    struct tiny_engine t;
    struct tiny_shape shape = shape_of(true);
    static struct taken taken;
    mf_scheduler *scheduler;
    mf_request *request;
    mf_error why = { 0 };
    shape.context_length = CONTEXT_LONG;
    mf_model_options model = { .struct_size = sizeof model,
                               .context_length = CONTEXT_LONG,
                               .cache = "reuse" };
    tiny_engine_open_as(&t, &shape, NULL, &model);
    tiny_must(mf_scheduler_open(&scheduler, t.model, NULL, &why), &why);
    tiny_tokens(taken.tokens, &t, PROMPT);
    taken.count = PROMPT;
    mf_request_options options = MF_REQUEST_OPTIONS_INIT;
    options.tokens = taken.tokens;
    options.token_count = PROMPT;
    options.max_tokens = 1100;
    options.ignore_end = true;
    options.token = take;
    options.user = &taken;
    tiny_must(mf_request_submit(&request, scheduler, &options, &why), &why);
    tiny_must(mf_request_wait(request, NULL, &why), &why);
    mf_request_close(request);
    options.token_count = EDITED + 5;
    options.max_tokens = 1;
    taken.tokens[EDITED] = (taken.tokens[EDITED] + 1) % 50;
    tiny_must(mf_request_submit(&request, scheduler, &options, &why), &why);
    mf_request_result result = MF_REQUEST_RESULT_INIT;
    tiny_must(mf_request_wait(request, &result, &why), &why);
    assert_int_equal(result.cached.matched, EDITED);
    assert_int_equal(result.cached.resumed, PREFIX_NET_GENERATED);
    mf_request_close(request);
    mf_scheduler_close(scheduler);
    tiny_engine_close(&t);
}

/* --------------------------------------------------------------------- parking */

/* As many answers as grow beyond the pool: they are parked and come back. */
enum { SHORT_PROMPT = 30, LONG = 450 };

static int32_t long_answer[LONG]; /* to the beginning of the first prompt */

struct grown {
    struct request request;
    pthread_mutex_t lock;
    pthread_cond_t ends;
    uint32_t tokens, parked;
    mf_status status;
    bool ended;
};

static int32_t next_token(void *user, const float *logits)
{
    struct grown *g = user;
    int32_t token = largest(logits, 50);
    REQUIRE(token == long_answer[g->tokens]);
    return ++g->tokens < LONG ? token : -1;
}

static void note_end(void *user, const struct request_outcome *outcome)
{
    struct grown *g = user;
    pthread_mutex_lock(&g->lock);
    g->status = outcome->error.status;
    g->parked = outcome->parked;
    g->ended = true;
    pthread_cond_signal(&g->ends);
    pthread_mutex_unlock(&g->lock);
}

static char park_directory[] = "/tmp/moeflux_park.XXXXXX";

static int make_park_directory(void **state)
{
    (void)state;
    return mkdtemp(park_directory) ? 0 : -1;
}

static int remove_park_directory(void **state)
{
    (void)state;
    return rmdir(park_directory); /* which is empty */
}

struct growing {
    struct tiny_engine t;
    struct requests *requests;
    struct grown grown[5];
};

static void find_long_answer(struct tiny_engine *t)
{
    mf_sequence *sequence = tiny_sequence(t, 0);
    find_facts(t);
    tiny_feed(sequence, facts[0].prompt, SHORT_PROMPT);
    for (int i = 0; i < LONG; i++) {
        long_answer[i] = largest(mf_sequence_logits(sequence), t->tiny.shape.vocab_size);
        tiny_feed_as(sequence, MF_PHASE_GENERATED, &long_answer[i], 1);
    }
    mf_sequence_close(sequence);
}

/* Of the answers the pool holds two in full; three begin. */
static void growing_open(struct growing *g, const struct disk *disk)
{
    struct tiny_shape shape = shape_of(true);
    mf_model_options model = { .struct_size = sizeof model, .context_length = 512 };
    mf_error why = { 0 };
    tiny_engine_open_as(&g->t, &shape, NULL, &model);
    find_long_answer(&g->t);
    struct state_pool *pool = &g->t.model->room.pool;
    state_pool_set_limit(pool, 2 * sequence_pool_bytes(&pool->shape, SHORT_PROMPT + LONG));
    struct requests_options options = { .room = &g->t.model->room,
                                        .engine_lock = &g->t.engine->lock,
                                        .parallel = 8,
                                        .park_directory = park_directory,
                                        .disk = disk };
    tiny_must(requests_new(&g->requests, &options, &why), &why);
}

/* No step runs before all are there. */
static void growing_submit(struct growing *g)
{
    mf_error why = { 0 };
    pthread_mutex_lock(&g->t.engine->lock);
    for (size_t i = 0; i < COUNT_OF(g->grown); i++) {
        struct grown *one = &g->grown[i];
        *one = (struct grown){ 0 };
        pthread_mutex_init(&one->lock, NULL);
        pthread_cond_init(&one->ends, NULL);
        struct request_wishes wishes = { .prompt = facts[0].prompt,
                                         .prompt_count = SHORT_PROMPT,
                                         .answer_count = LONG,
                                         .calls = {
                                             .next = next_token, .ended = note_end, .user = one } };
        tiny_must(requests_submit(g->requests, &one->request, &wishes, &why), &why);
    }
    pthread_mutex_unlock(&g->t.engine->lock);
}

/* Returns how many were parked. */
static uint32_t growing_close(struct growing *g)
{
    uint32_t parked = 0;
    for (size_t i = 0; i < COUNT_OF(g->grown); i++) {
        struct grown *one = &g->grown[i];
        pthread_mutex_lock(&one->lock);
        while (!one->ended) pthread_cond_wait(&one->ends, &one->lock);
        pthread_mutex_unlock(&one->lock);
        assert_int_equal(one->status, MF_OK);
        assert_int_equal(one->tokens, LONG);
        parked += one->parked;
        pthread_cond_destroy(&one->ends);
        pthread_mutex_destroy(&one->lock);
    }
    requests_free(g->requests);
    assert_int_equal(state_pool_sizes(&g->t.model->room.pool).held_bytes, 0);
    tiny_engine_close(&g->t);
    return parked;
}

static atomic_uint writes;

static int64_t write_nothing(void *user, void *handle, uint64_t offset, const void *bytes,
                             size_t count)
{
    (void)user, (void)handle, (void)offset, (void)bytes, (void)count;
    atomic_fetch_add(&writes, 1);
    return -ENOSPC;
}

static void a_full_disk_keeps_parked_states_in_memory(void **state)
{
    (void)state;
    struct growing *g = calloc(1, sizeof *g);
    struct disk full = disk_private;
    assert_non_null(g);
    full.write = write_nothing;
    growing_open(g, &full);
    growing_submit(g);
    assert_true(growing_close(g) > 0);
    assert_true(writes > 0);
    free(g);
}

/* In one process, as are those of one number in two containers. */
static void schedulers_share_a_directory_for_parked_states(void **state)
{
    (void)state;
    struct growing *two = calloc(2, sizeof *two);
    assert_non_null(two);
    for (int i = 0; i < 2; i++) growing_open(&two[i], NULL);
    for (int i = 0; i < 2; i++) growing_submit(&two[i]);
    for (int i = 0; i < 2; i++) assert_true(growing_close(&two[i]) > 0);
    free(two);
    DIR *directory = opendir(park_directory);
    assert_non_null(directory);
    for (struct dirent *item; (item = readdir(directory));) assert_int_equal(item->d_name[0], '.');
    closedir(directory);
}

static void a_directory_that_is_not_there_is_refused(void **state)
{
    (void)state;
    struct tiny_engine t;
    struct tiny_shape shape = shape_of(true);
    mf_scheduler *scheduler;
    mf_scheduler_options options = MF_SCHEDULER_OPTIONS_INIT;
    mf_error why = { 0 };
    tiny_engine_open(&t, &shape, NULL);
    options.park_directory = "/tmp/moeflux_not_there/at/all";
    assert_int_equal(mf_scheduler_open(&scheduler, t.model, &options, &why), MF_ERR_IO);
    assert_non_null(strstr(why.text, "moeflux_not_there"));
    assert_null(scheduler);
    tiny_engine_close(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_request_ends_once_and_gives_its_memory_back),
        cmocka_unit_test(every_allocation_may_fail),
        cmocka_unit_test(reads_may_fail),
        cmocka_unit_test(a_request_that_just_fits_alone_is_answered),
        cmocka_unit_test(prompts_wait_for_room_and_are_not_parked),
        cmocka_unit_test(a_client_with_many_requests_is_passed),
        cmocka_unit_test(a_long_answer_leaves_checkpoints),
        cmocka_unit_test(schedulers_share_a_directory_for_parked_states),
        cmocka_unit_test(a_full_disk_keeps_parked_states_in_memory),
        cmocka_unit_test(a_directory_that_is_not_there_is_refused),
    };
    return cmocka_run_group_tests(tests, make_park_directory, remove_park_directory);
}
