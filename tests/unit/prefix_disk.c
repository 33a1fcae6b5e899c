/* prefix_disk: what the prefix cache keeps in a directory is found by the next process, has the
 * same bits, and is never served when it is damaged. */
#include "support/test.h"

#include "support/random_text.h"
#include "support/tiny_engine.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { PROMPT = 200, HEAD = 150, TEXTS = 6, REQUESTS = 240 };

static char directory[256];

static int make_directory(void **state)
{
    /* In memory: thousands of files are synced. */
    const char *place = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
    (void)state;
    snprintf(directory, sizeof directory, "%s/moeflux_prefix.XXXXXX", place);
    return mkdtemp(directory) ? 0 : -1;
}

static void for_each_file(void (*function)(const char *path, void *user), void *user)
{
    DIR *stream = opendir(directory);
    struct dirent *item;
    assert_non_null(stream);
    while ((item = readdir(stream))) {
        char path[1024];
        snprintf(path, sizeof path, "%s/%s", directory, item->d_name);
        if (item->d_name[0] != '.') function(path, user);
    }
    closedir(stream);
}

static void remove_file(const char *path, void *user)
{
    (void)user;
    unlink(path);
}

static int empty_directory(void **state)
{
    (void)state;
    for_each_file(remove_file, NULL);
    return 0;
}

static int remove_directory(void **state)
{
    (void)state;
    return rmdir(directory);
}

static struct tiny_shape shape_of(bool hybrid)
{
    struct tiny_shape shape = tiny_standard;
    shape.interval = hybrid ? 2 : 1;
    return shape;
}

static void open_cached(struct tiny_engine *t, const struct tiny_shape *shape, const char *cache,
                        uint64_t memory_bytes, uint64_t disk_bytes)
{
    mf_engine_options engine = { .struct_size = sizeof engine, .thread_count = 1 };
    mf_model_options options = { .struct_size = sizeof options,
                                 .context_length = 256,
                                 .sequences = 2,
                                 .cache = cache,
                                 .cache_bytes = memory_bytes,
                                 .cache_directory = directory,
                                 .cache_disk_bytes = disk_bytes };
    tiny_engine_open_as(t, shape, &engine, &options);
    assert_non_null(t->model->disk.store);
}

/* ------------------------------------------------------------------- restarts */

static uint32_t resume(mf_sequence *sequence, const int32_t *tokens, uint32_t count)
{
    mf_resumed found = MF_RESUMED_INIT;
    mf_error why = { 0 };
    tiny_must(mf_sequence_resume(sequence, tokens, count, &found, &why), &why);
    assert_int_equal(found.resumed, mf_sequence_position(sequence));
    return found.resumed;
}

static void check_restart(bool hybrid)
{
    struct tiny_shape shape = shape_of(hybrid);
    struct tiny_engine t;
    int32_t tokens[PROMPT];
    float *logits[2];
    for (int run = 0; run < 2; run++) {
        open_cached(&t, &shape, "exact", 0, 0);
        tiny_tokens(tokens, &t, PROMPT);
        mf_sequence *sequence = tiny_sequence(&t, 0);
        assert_int_equal(resume(sequence, tokens, PROMPT), run ? HEAD : 0);
        if (run == 0) tiny_feed(sequence, tokens, HEAD);
        assert_int_equal(mf_sequence_keep(sequence, MF_PLACE_HEAD, NULL), MF_OK);
        tiny_feed(sequence, tokens + HEAD, PROMPT - HEAD);
        logits[run] = tiny_copy_logits(sequence);
        mf_model_statistics statistics = MF_MODEL_STATISTICS_INIT;
        mf_model_stats(t.model, &statistics, NULL);
        assert_true((statistics.cache_disk_read_bytes > 0) == (run == 1));
        mf_sequence_close(sequence);
        tiny_engine_close(&t);
    }
    assert_memory_equal(logits[0], logits[1], shape.vocab_size * sizeof(float));
    free(logits[0]);
    free(logits[1]);
}

static void a_head_is_found_after_a_restart(void **state)
{
    (void)state;
    check_restart(true);
    empty_directory(NULL);
    check_restart(false);
}

/* ------------------------------------------------------------------ long heads */

enum { LONG_HEAD = 2000, LONG_PROMPT = LONG_HEAD + 30 };

/* Tokens that a request computes of a head of 2,000; `place`: it ends at a
 * breakpoint. */
static uint32_t computed_of_head(struct tiny_engine *t, int32_t tail, bool place)
{
    static const uint32_t end = LONG_HEAD;
    int32_t tokens[LONG_PROMPT];
    mf_scheduler *scheduler;
    mf_request *request;
    mf_request_result result = MF_REQUEST_RESULT_INIT;
    mf_error why = { 0 };
    mf_request_options options = MF_REQUEST_OPTIONS_INIT;
    tiny_tokens(tokens, t, LONG_HEAD);
    for (int i = LONG_HEAD; i < LONG_PROMPT; i++) tokens[i] = (tail + i) % 50;
    options.tokens = tokens;
    options.token_count = LONG_PROMPT;
    options.max_tokens = 2;
    options.ignore_end = true;
    options.breakpoints = &end;
    options.breakpoint_count = place;
    tiny_must(mf_scheduler_open(&scheduler, t->model, NULL, &why), &why);
    tiny_must(mf_request_submit(&request, scheduler, &options, &why), &why);
    tiny_must(mf_request_wait(request, &result, &why), &why);
    mf_request_close(request);
    mf_scheduler_close(scheduler);
    uint32_t resumed = result.cached.resumed;
    return resumed < LONG_HEAD ? LONG_HEAD - resumed : 0;
}

static void open_long(struct tiny_engine *t, bool hybrid)
{
    struct tiny_shape shape = shape_of(hybrid);
    mf_engine_options engine = { .struct_size = sizeof engine, .thread_count = 1 };
    mf_model_options options = { .struct_size = sizeof options,
                                 .context_length = 4096,
                                 .cache = "exact",
                                 .cache_directory = directory };
    shape.context_length = 4096;
    tiny_engine_open_as(t, &shape, &engine, &options);
}

static void a_long_head_is_computed_once(void **state)
{
    struct tiny_engine t;
    (void)state;
    for (int hybrid = 0; hybrid < 2; hybrid++)
        for (int place = 0; place < 2; place++) {
            open_long(&t, hybrid);
            assert_int_equal(computed_of_head(&t, 1, place), LONG_HEAD);
            uint32_t second = computed_of_head(&t, 2, place),
                     third = computed_of_head(&t, 3, place);
            assert_true(second <= 100 || (hybrid && !place));
            assert_true(third <= 100);
            tiny_engine_close(&t);
            open_long(&t, hybrid); /* another process */
            assert_true(computed_of_head(&t, 4, place) <= 100);
            tiny_engine_close(&t);
            empty_directory(NULL);
        }
}

static void another_model_finds_nothing(void **state)
{
    struct tiny_shape shape = shape_of(true);
    struct tiny_engine t;
    int32_t tokens[PROMPT];
    (void)state;
    for (int run = 0; run < 3; run++) {
        shape.seed = run == 1 ? 77 : tiny_standard.seed;
        open_cached(&t, &shape, "exact", 0, 0);
        tiny_tokens(tokens, &t, PROMPT);
        mf_sequence *sequence = tiny_sequence(&t, 0);
        assert_int_equal(resume(sequence, tokens, PROMPT), run == 2 ? HEAD : 0);
        if (run < 2) tiny_feed(sequence, tokens, HEAD);
        if (run == 0) assert_int_equal(mf_sequence_keep(sequence, MF_PLACE_HEAD, NULL), MF_OK);
        mf_sequence_close(sequence);
        tiny_engine_close(&t);
    }
}

/* The same weights with an edited config: other bits at every position but the first. */
static void an_edited_config_is_another_model(void **state)
{
    struct tiny_shape shape = shape_of(true);
    struct tiny_engine t;
    int32_t tokens[PROMPT];
    (void)state;
    for (int run = 0; run < 3; run++) {
        shape.rotary_factor = run == 1 ? 1 : tiny_standard.rotary_factor;
        open_cached(&t, &shape, "exact", 0, 0);
        tiny_tokens(tokens, &t, PROMPT);
        mf_sequence *sequence = tiny_sequence(&t, 0);
        assert_int_equal(resume(sequence, tokens, PROMPT), run == 2 ? HEAD : 0);
        if (run < 2) tiny_feed(sequence, tokens, HEAD);
        if (run == 0) assert_int_equal(mf_sequence_keep(sequence, MF_PLACE_HEAD, NULL), MF_OK);
        mf_sequence_close(sequence);
        tiny_engine_close(&t);
    }
}

static void a_page_that_grows_replaces_its_file(void **state)
{
    struct tiny_shape shape = shape_of(false);
    struct tiny_engine t;
    int32_t tokens[PROMPT];
    (void)state;
    open_cached(&t, &shape, "exact", 0, 0);
    tiny_tokens(tokens, &t, PROMPT);
    mf_sequence *sequence = tiny_sequence(&t, 0);
    for (uint32_t at = 0; at < PROMPT; at += 20) {
        tiny_feed(sequence, tokens + at, 20);
        assert_int_equal(mf_sequence_keep(sequence, MF_PLACE_PROMPT_END, NULL), MF_OK);
    }
    mf_sequence_close(sequence);
    cache_store_flush(t.model->disk.store);
    assert_int_equal(cache_store_statistics(t.model->disk.store).records, 4);
    tiny_engine_close(&t);
}

static void a_held_directory_leaves_memory(void **state)
{
    struct tiny_shape shape = shape_of(true);
    struct tiny_engine t, other;
    mf_model_options options = { .struct_size = sizeof options,
                                 .cache = "exact",
                                 .cache_directory = directory };
    int32_t tokens[PROMPT];
    (void)state;
    open_cached(&t, &shape, "exact", 0, 0);
    tiny_engine_open_as(&other, &shape, NULL, &options);
    assert_null(other.model->disk.store);
    tiny_tokens(tokens, &other, PROMPT);
    mf_sequence *sequence = tiny_sequence(&other, 0);
    tiny_feed(sequence, tokens, HEAD);
    assert_int_equal(mf_sequence_keep(sequence, MF_PLACE_HEAD, NULL), MF_OK);
    assert_int_equal(resume(sequence, tokens, PROMPT), HEAD);
    mf_sequence_close(sequence);
    tiny_engine_close(&other);
    tiny_engine_close(&t);
}

static void a_directory_needs_a_cache(void **state)
{
    struct tiny_shape shape = shape_of(true);
    struct tiny_engine t;
    mf_model *model;
    mf_error why = { 0 };
    mf_model_options options = { .struct_size = sizeof options, .cache_directory = directory };
    (void)state;
    tiny_engine_open(&t, &shape, NULL);
    assert_int_equal(mf_model_open(&model, t.engine, TINY_PATH, &options, &why), MF_ERR_ARGUMENT);
    assert_non_null(strstr(why.text, "needs a cache"));
    tiny_engine_close(&t);
}

/* ------------------------------------------------------------ random requests */

struct text {
    int32_t tokens[PROMPT];
    uint32_t count;
};

static void make_prompt(struct random_text *random, struct text *out, const struct text *texts)
{
    const struct text *from = &texts[random_below(random, TEXTS)];
    uint32_t shared = random_below(random, (uint32_t)min_size(from->count + 1, PROMPT));
    *out = (struct text){ .count = shared + 1 + random_below(random, PROMPT - shared) };
    if (out->count > PROMPT) out->count = PROMPT;
    memcpy(out->tokens, from->tokens, shared * sizeof *out->tokens);
    for (uint32_t i = shared; i < out->count; i++)
        out->tokens[i] = (int32_t)random_below(random, 20);
}

/* The same prompt with the cache and without it: the same bits. */
static uint32_t request(struct tiny_engine *t, struct random_text *random,
                        const struct text *prompt)
{
    mf_sequence *cached = tiny_sequence(t, 0), *plain = tiny_sequence(t, 0);
    uint32_t resumed = resume(cached, prompt->tokens, prompt->count);
    uint32_t middle = random_below(random, prompt->count);
    if (middle > resumed) {
        tiny_feed(cached, prompt->tokens + resumed, middle - resumed);
        assert_int_equal(mf_sequence_keep(cached, MF_PLACE_BREAKPOINT, NULL), MF_OK);
    }
    uint32_t at = mf_sequence_position(cached);
    tiny_feed(cached, prompt->tokens + at, prompt->count - at);
    assert_int_equal(mf_sequence_keep(cached, MF_PLACE_PROMPT_END, NULL), MF_OK);
    tiny_feed(plain, prompt->tokens, prompt->count);
    assert_memory_equal(mf_sequence_logits(cached), mf_sequence_logits(plain),
                        t->tiny.shape.vocab_size * sizeof(float));
    int32_t answer = (int32_t)random_below(random, 20);
    tiny_feed_as(cached, MF_PHASE_GENERATED, &answer, 1);
    tiny_feed_as(plain, MF_PHASE_GENERATED, &answer, 1);
    assert_memory_equal(mf_sequence_logits(cached), mf_sequence_logits(plain),
                        t->tiny.shape.vocab_size * sizeof(float));
    assert_int_equal(mf_sequence_keep(cached, MF_PLACE_ANSWER_END, NULL), MF_OK);
    mf_sequence_close(cached);
    mf_sequence_close(plain);
    return resumed;
}

/* One bit of some of the files. */
static void damage(const char *path, void *user)
{
    struct random_text *random = user;
    if (random_below(random, 8) != 0) return;
    FILE *file = fopen(path, "r+b");
    assert_non_null(file);
    fseek(file, 0, SEEK_END);
    long size = ftell(file);
    if (size > 0) {
        fseek(file, (long)random_below(random, (uint32_t)size), SEEK_SET);
        int byte = fgetc(file);
        fseek(file, -1, SEEK_CUR);
        fputc(byte ^ 1 << random_below(random, 8), file);
    }
    fclose(file);
}

static void count_bytes(const char *path, void *user)
{
    FILE *file = fopen(path, "rb");
    if (!file) return;
    fseek(file, 0, SEEK_END);
    *(uint64_t *)user += (uint64_t)ftell(file);
    fclose(file);
}

static void check_requests(bool hybrid, bool damaged)
{
    enum { DISK = 600000 };
    struct tiny_shape shape = shape_of(hybrid);
    struct random_text random = { .state = 3 };
    struct text texts[TEXTS] = { 0 };
    uint64_t resumed = 0, read = 0, found_damage = 0;
    for (int i = 0; i < REQUESTS;) {
        struct tiny_engine t;
        open_cached(&t, &shape, "exact", 100000, DISK);
        for (uint32_t left = 1 + random_below(&random, 16); left > 0; left--, i++) {
            struct text *prompt = &texts[random_below(&random, TEXTS)];
            struct text made;
            make_prompt(&random, &made, texts);
            resumed += request(&t, &random, &made);
            *prompt = made;
        }
        struct cache_store_statistics s = cache_store_statistics(t.model->disk.store);
        read += s.bytes_read;
        found_damage += s.damaged;
        assert_true(cache_store_check_invariants(t.model->disk.store));
        tiny_engine_close(&t);
        uint64_t bytes = 0;
        for_each_file(count_bytes, &bytes);
        assert_true(bytes <= DISK);
        if (damaged) for_each_file(damage, &random);
    }
    assert_true(resumed > 0 && read > 0);
    assert_true((found_damage > 0) == damaged);
    print_message("%s: %llu tokens resumed, %llu bytes read, %llu files damaged\n",
                  hybrid ? "hybrid" : "attention", (unsigned long long)resumed,
                  (unsigned long long)read, (unsigned long long)found_damage);
}

static void random_requests_have_the_same_bits(void **state)
{
    (void)state;
    check_requests(true, false);
    empty_directory(NULL);
    check_requests(false, false);
}

static void damaged_files_change_no_bit(void **state)
{
    (void)state;
    check_requests(true, true);
    empty_directory(NULL);
    check_requests(false, true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(a_head_is_found_after_a_restart, empty_directory),
        cmocka_unit_test_teardown(a_long_head_is_computed_once, empty_directory),
        cmocka_unit_test_teardown(another_model_finds_nothing, empty_directory),
        cmocka_unit_test_teardown(an_edited_config_is_another_model, empty_directory),
        cmocka_unit_test_teardown(a_page_that_grows_replaces_its_file, empty_directory),
        cmocka_unit_test_teardown(a_held_directory_leaves_memory, empty_directory),
        cmocka_unit_test_teardown(a_directory_needs_a_cache, empty_directory),
        cmocka_unit_test_teardown(random_requests_have_the_same_bits, empty_directory),
        cmocka_unit_test_teardown(damaged_files_change_no_bit, empty_directory),
    };
    return cmocka_run_group_tests(tests, make_directory, remove_directory);
}
