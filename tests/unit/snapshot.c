/* snapshot: a sequence saved at any position goes on with the same bits; what is damaged, cut or of
 * another model is refused and changes nothing. */
#include "support/test.h"

#include "support/memory_disk.h"
#include "support/tiny_engine.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { TOKENS = 90, PROMPT = 50 }; /* over a page edge; the prompt ends inside a delta chunk */

static const char *const backends[] = { "reference", "cpu" };

static const char *const types[] = { "f32", "f16", "q8" };

/* With a type of keys and values, and a kernel set; NULL: the backend's. */
static void open_as(struct tiny_engine *t, const struct tiny_shape *shape, const char *backend,
                    const char *kv_type, const char *kernels)
{
    mf_engine_options engine = {
        .struct_size = sizeof engine, .thread_count = 1, .backend = backend, .kernels = kernels
    };
    tiny_engine_open_as(
        t, shape, &engine,
        &(mf_model_options){ .struct_size = sizeof(mf_model_options), .kv_type = kv_type });
}

static void open_with(struct tiny_engine *t, const struct tiny_shape *shape, const char *backend)
{
    open_as(t, shape, backend, NULL, NULL);
}

static void feed_range(mf_sequence *sequence, const int32_t *tokens, size_t from, size_t to)
{
    size_t prompt = from < PROMPT ? (to < PROMPT ? to : PROMPT) - from : 0;
    if (prompt > 0) tiny_feed(sequence, tokens + from, prompt);
    if (from + prompt < to)
        tiny_feed_as(sequence, MF_PHASE_GENERATED, tokens + from + prompt, to - from - prompt);
}

static void *save(const mf_sequence *sequence, size_t *count)
{
    mf_error why = { 0 };
    size_t bytes = (size_t)mf_sequence_snapshot_bytes(sequence);
    void *out = malloc(bytes);
    assert_non_null(out);
    assert_int_equal(mf_sequence_save(sequence, out, bytes - 1, count, &why), MF_ERR_BUFFER_SIZE);
    tiny_must(mf_sequence_save(sequence, out, bytes, count, &why), &why);
    assert_int_equal(*count, bytes);
    return out;
}

static void same_logits(const mf_sequence *a, const mf_sequence *b)
{
    size_t bytes = mf_model_vocab_size(mf_sequence_model(a)) * sizeof(float);
    assert_memory_equal(mf_sequence_logits(a), mf_sequence_logits(b), bytes);
}

static void a_snapshot_goes_on_with_the_same_bits(void **state)
{
    (void)state;
    for (size_t s = 0; s < 4 * COUNT_OF(types); s++) {
        struct tiny_engine t, other; /* the second knows nothing of the first */
        int32_t tokens[TOKENS];
        mf_error why = { 0 };
        const struct tiny_shape *shape = s % 2 ? &tiny_standard : &tiny_affine;
        open_as(&t, shape, backends[s / 2 % 2], types[s / 4], NULL);
        open_as(&other, shape, backends[s / 2 % 2], types[s / 4], NULL);
        tiny_tokens(tokens, &t, TOKENS);
        mf_sequence *whole = tiny_sequence(&t, 0), *restored = tiny_sequence(&other, 0);
        feed_range(whole, tokens, 0, TOKENS);
        for (size_t at = 0; at <= TOKENS; at += 1 + at % 7) {
            size_t count;
            mf_sequence *part = tiny_sequence(&t, 0);
            feed_range(part, tokens, 0, at);
            void *bytes = save(part, &count);
            tiny_must(mf_sequence_load(restored, bytes, count, &why), &why);
            assert_true(engine_sequence_check_invariants(&restored->sequence));
            assert_int_equal(mf_sequence_position(restored), at);
            if (at == 0) assert_null(mf_sequence_logits(restored));
            if (at > 0) same_logits(restored, part);
            feed_range(restored, tokens, at, TOKENS);
            same_logits(restored, whole);
            free(bytes);
            mf_sequence_close(part);
        }
        mf_sequence_close(whole);
        mf_sequence_close(restored);
        tiny_engine_close(&t);
        tiny_engine_close(&other);
    }
}

/* A sequence that refuses what it is given, and stays what it is. */
static void refuses(mf_sequence *sequence, const void *bytes, size_t count, mf_status expected)
{
    mf_error why = { 0 };
    uint32_t position = mf_sequence_position(sequence);
    uint32_t held = state_pool_sizes(&sequence->model->room.pool).held[BLOCK_PAGE];
    mf_status status = mf_sequence_load(sequence, bytes, count, &why);
    if (status == MF_OK || (expected != MF_OK && status != expected))
        fail_msg("status %d, expected %d: %s", (int)status, (int)expected, why.text);
    assert_true(why.text[0] != '\0');
    assert_int_equal(mf_sequence_position(sequence), position);
    assert_int_equal(state_pool_sizes(&sequence->model->room.pool).held[BLOCK_PAGE], held);
}

static void every_flipped_bit_is_found(void **state)
{
    (void)state;
    struct tiny_engine t;
    int32_t tokens[TOKENS];
    size_t count;
    struct tiny_shape shape = tiny_odd; /* small */
    open_with(&t, &shape, "reference");
    tiny_tokens(tokens, &t, TOKENS);
    mf_sequence *sequence = tiny_sequence(&t, 0), *from = tiny_sequence(&t, 0);
    feed_range(from, tokens, 0, 3);
    feed_range(sequence, tokens, 0, 5);
    float *logits = tiny_copy_logits(sequence);
    size_t counts[2];
    uint8_t *bytes = save(from, &count), *before = save(sequence, &counts[0]);
    for (size_t bit = 0; bit < 8 * count; bit++) {
        bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
        refuses(sequence, bytes, count, MF_OK);
        bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    for (size_t cut = 0; cut < count; cut++) refuses(sequence, bytes, cut, MF_ERR_FORMAT);
    uint8_t *after = save(sequence, &counts[1]);
    assert_int_equal(counts[0], counts[1]);
    assert_memory_equal(before, after, counts[0]);
    free(before);
    free(after);
    assert_memory_equal(mf_sequence_logits(sequence), logits, shape.vocab_size * sizeof(float));
    assert_true(engine_sequence_check_invariants(&sequence->sequence));
    free(bytes);
    free(logits);
    mf_sequence_close(sequence);
    mf_sequence_close(from);
    tiny_engine_close(&t);
}

static void another_model_is_refused_by_name(void **state)
{
    (void)state;
    struct tiny_engine t, others[5];
    struct tiny_shape seeded = tiny_standard, fewer = tiny_standard;
    mf_model_options chosen = { .struct_size = sizeof chosen, .experts_per_token = 1 };
    int32_t tokens[TOKENS];
    size_t count;
    mf_error why = { 0 };
    seeded.seed++;
    open_with(&t, &tiny_standard, "cpu");
    open_with(&others[0], &tiny_affine, "cpu");
    open_with(&others[1], &seeded, "cpu"); /* the same shapes */
    open_as(&others[2], &tiny_standard, "reference", "f16", NULL);
    fewer.experts_per_token = 1; /* in the config, and as an option */
    open_with(&others[3], &fewer, "cpu");
    tiny_engine_open_as(&others[4], &tiny_standard,
                        &(mf_engine_options){ .struct_size = sizeof(mf_engine_options),
                                              .thread_count = 1,
                                              .backend = "cpu" },
                        &chosen);
    tiny_tokens(tokens, &t, TOKENS);
    mf_sequence *from = tiny_sequence(&t, 0);
    feed_range(from, tokens, 0, 20);
    void *bytes = save(from, &count);
    for (size_t i = 0; i < COUNT_OF(others); i++) {
        mf_sequence *sequence = tiny_sequence(&others[i], 0);
        refuses(sequence, bytes, count, MF_ERR_MISMATCH);
        mf_sequence_load(sequence, bytes, count, &why);
        assert_non_null(strstr(why.text, i < 2 ? "another model" : "other arithmetic"));
        mf_sequence_close(sequence);
    }
    mf_sequence_options small = { .struct_size = sizeof small, .context_length = 19 };
    mf_sequence *sequence;
    tiny_must(mf_sequence_open(&sequence, t.model, &small, &why), &why);
    refuses(sequence, bytes, count, MF_ERR_CONTEXT_FULL);
    mf_sequence_close(sequence);
    sequence = tiny_sequence(&t, 0);
    uint64_t limit = t.model->room.pool.limit_bytes;
    state_pool_set_limit(&t.model->room.pool, 1);
    refuses(sequence, bytes, count, MF_ERR_POOL_FULL);
    state_pool_set_limit(&t.model->room.pool, limit);
    tiny_must(mf_sequence_load(sequence, bytes, count, &why), &why);
    same_logits(sequence, from);
    mf_sequence_close(sequence);
    mf_sequence_close(from);
    free(bytes);
    tiny_engine_close(&t);
    for (size_t i = 0; i < COUNT_OF(others); i++) tiny_engine_close(&others[i]);
}

static void another_type_of_keys_and_values_is_refused_by_name(void **state)
{
    (void)state;
    struct tiny_engine engines[COUNT_OF(types)];
    int32_t tokens[TOKENS];
    for (size_t i = 0; i < COUNT_OF(types); i++)
        open_as(&engines[i], &tiny_standard, "cpu", types[i], NULL);
    tiny_tokens(tokens, &engines[0], TOKENS);
    for (size_t i = 0; i < COUNT_OF(types); i++) {
        mf_sequence *from = tiny_sequence(&engines[i], 0);
        size_t count;
        feed_range(from, tokens, 0, 20);
        void *bytes = save(from, &count);
        for (size_t j = 0; j < COUNT_OF(types); j++) {
            mf_sequence *to = tiny_sequence(&engines[j], 0);
            mf_error why = { 0 };
            char expected[128];
            snprintf(expected, sizeof expected,
                     "the snapshot's keys and values are in %s, those of the model here in %s",
                     types[i], types[j]);
            assert_int_equal(mf_sequence_load(to, bytes, count, &why),
                             i == j ? MF_OK : MF_ERR_MISMATCH);
            if (i != j) assert_string_equal(why.text, expected);
            mf_sequence_close(to);
        }
        free(bytes);
        mf_sequence_close(from);
    }
    for (size_t i = 0; i < COUNT_OF(types); i++) tiny_engine_close(&engines[i]);
}

/* What other sequences wrote into a page, or a snapshot's own rows behind its end, is not told. */
static void nothing_behind_the_end_is_saved(void **state)
{
    (void)state;
    for (size_t b = 0; b < COUNT_OF(backends) * COUNT_OF(types); b++) {
        struct tiny_engine t;
        int32_t tokens[TOKENS];
        size_t counts[2];
        mf_error why = { 0 };
        struct tiny_shape shape = tiny_standard;
        shape.interval = 1; /* every layer has pages */
        open_as(&t, &shape, backends[b % 2], types[b / 2], NULL);
        tiny_tokens(tokens, &t, TOKENS);
        mf_sequence *one = tiny_sequence(&t, 0), *two = tiny_sequence(&t, 0);
        feed_range(one, tokens, 0, 45);
        tiny_must(mf_sequence_truncate(one, 30, NULL, &why), &why);
        feed_range(two, tokens, 0, 30);
        two->sequence.has_logits = false; /* as a cut leaves it */
        void *first = save(one, &counts[0]), *second = save(two, &counts[1]);
        assert_int_equal(counts[0], counts[1]);
        assert_memory_equal(first, second, counts[0]);
        free(first);
        free(second);
        mf_sequence_close(one);
        mf_sequence_close(two);
        tiny_engine_close(&t);
    }
}

/* The same content by another way: fed at once, in parts, after another text in the same memory,
 * forked, restored. */
static void a_snapshot_is_a_function_of_tokens_and_phases(void **state)
{
    (void)state;
    static const size_t ends[] = { 1, 15, 16, 37, PROMPT, PROMPT + 1, PROMPT + 9, TOKENS };
    for (size_t s = 0; s < 2 * COUNT_OF(ends); s++) {
        struct tiny_engine t, fresh;
        int32_t tokens[TOKENS], others[TOKENS];
        size_t counts[2], end = ends[s / 2];
        mf_error why = { 0 };
        open_with(&t, &tiny_odd, backends[s % 2]);
        open_with(&fresh, &tiny_odd, backends[s % 2]);
        tiny_tokens(tokens, &t, TOKENS);
        for (size_t i = 0; i < TOKENS; i++) others[i] = tokens[TOKENS - 1 - i];
        mf_sequence *one = tiny_sequence(&fresh, 0), *two = tiny_sequence(&t, 0), *fork, *restored;
        feed_range(one, tokens, 0, end);
        for (size_t i = 0; i < 3; i++) { /* blocks of the pool are used, and used again */
            feed_range(two, others, 0, 47 + i);
            mf_sequence_clear(two);
        }
        for (size_t i = 0; i < end; i++) feed_range(two, tokens, i, i + 1);
        tiny_must(mf_sequence_fork(&fork, two, &why), &why);
        feed_range(two, others, 0, 3);
        void *first = save(one, &counts[0]), *second = save(fork, &counts[1]);
        assert_int_equal(counts[0], counts[1]);
        assert_memory_equal(first, second, counts[0]);
        restored = tiny_sequence(&t, 0);
        tiny_must(mf_sequence_load(restored, second, counts[1], &why), &why);
        free(second);
        second = save(restored, &counts[1]);
        assert_memory_equal(first, second, counts[0]);
        free(first);
        free(second);
        mf_sequence_close(one);
        mf_sequence_close(two);
        mf_sequence_close(fork);
        mf_sequence_close(restored);
        tiny_engine_close(&t);
        tiny_engine_close(&fresh);
    }
}

static void files_are_whole_or_not_there(void **state)
{
    (void)state;
    struct tiny_engine t;
    int32_t tokens[TOKENS];
    mf_error why = { 0 };
    char path[] = "/tmp/moeflux_snapshot_XXXXXX", partial[64];
    int descriptor = mkstemp(path);
    assert_true(descriptor >= 0);
    close(descriptor);
    open_with(&t, &tiny_standard, "cpu");
    tiny_tokens(tokens, &t, TOKENS);
    mf_sequence *from = tiny_sequence(&t, 0), *to = tiny_sequence(&t, 0);
    feed_range(from, tokens, 0, 70);
    tiny_must(mf_sequence_save_file(from, path, &why), &why);
    snprintf(partial, sizeof partial, "%s.partial", path);
    assert_int_equal(access(partial, F_OK), -1);
    mf_files memory = t.engine->files; /* of the weights; snapshots lie on the disk */
    t.engine->files = files_posix;
    tiny_must(mf_sequence_load_file(to, path, &why), &why);
    same_logits(from, to);
    assert_int_equal(mf_sequence_save_file(from, "/nonexistent/x", &why), MF_ERR_IO);
    assert_int_equal(mf_sequence_load_file(to, "/nonexistent/x", &why), MF_ERR_IO);
    assert_int_equal(mf_sequence_position(to), 70);
    t.engine->files = memory;
    mf_sequence_close(from);
    mf_sequence_close(to);
    tiny_engine_close(&t);
    unlink(path);

    for (int kind = STOP_BEFORE; kind <= STOP_AFTER; kind++) {
        struct memory_disk disk;
        bool stopped = true;
        memory_disk_init(&disk);
        assert_int_equal(disk.disk.make_directory(disk.disk.user, "d"), 0);
        disk.disk.sync_directory(disk.disk.user, ".");
        assert_int_equal(disk_replace(&disk.disk, "d/state", "old", 3, &why), MF_OK);
        for (uint64_t nth = 1; stopped; nth++) {
            char *found;
            size_t length;
            memory_disk_stop(&disk, nth, (enum stop_kind)kind);
            disk_replace(&disk.disk, "d/state", nth % 2 ? "newer" : "old", nth % 2 ? 5 : 3, &why);
            stopped = memory_disk_restart(&disk, nth % 3 == 0);
            tiny_must(file_read_whole_new(&found, &length, &disk.files, "d/state", 100, &why),
                      &why);
            assert_true(strcmp(found, "old") == 0 || strcmp(found, "newer") == 0);
            free(found);
        }
        memory_disk_free(&disk);
    }
}

/* ---------------------------------------------------------------- a new process */

/* The child: continues the snapshot in `path` at `at` and leaves the last logits in its place. */
static int continue_in_file(const char *path, size_t at)
{
    struct tiny_engine t;
    int32_t tokens[TOKENS];
    mf_error why = { 0 };
    open_with(&t, &tiny_standard, "cpu");
    tiny_tokens(tokens, &t, TOKENS);
    mf_sequence *sequence = tiny_sequence(&t, 0);
    char *bytes; /* the engine's files are the tiny model's */
    size_t count;
    tiny_must(file_read_whole_new(&bytes, &count, &files_posix, path, 1 << 26, &why), &why);
    mf_status status = mf_sequence_load(sequence, bytes, count, &why);
    free(bytes);
    if (status == MF_OK) feed_range(sequence, tokens, at, TOKENS);
    FILE *file = fopen(path, "wb");
    size_t vocab = tiny_standard.vocab_size;
    bool written = status == MF_OK && file &&
                   fwrite(mf_sequence_logits(sequence), sizeof(float), vocab, file) == vocab;
    if (file) written = fclose(file) == 0 && written;
    mf_sequence_close(sequence);
    tiny_engine_close(&t);
    return written ? 0 : 1;
}

static void a_new_process_goes_on_with_the_same_bits(void **state)
{
    (void)state;
    static const size_t ends[] = { 21, PROMPT + 5 }; /* inside a delta chunk, inside an answer */
    struct tiny_engine t;
    int32_t tokens[TOKENS];
    mf_error why = { 0 };
    open_with(&t, &tiny_standard, "cpu");
    tiny_tokens(tokens, &t, TOKENS);
    mf_sequence *whole = tiny_sequence(&t, 0);
    feed_range(whole, tokens, 0, TOKENS);
    for (size_t i = 0; i < COUNT_OF(ends); i++) {
        char path[] = "/tmp/moeflux_snapshot_XXXXXX", at[16], *found;
        int descriptor = mkstemp(path), result = -1;
        size_t count;
        assert_true(descriptor >= 0);
        close(descriptor);
        mf_sequence *part = tiny_sequence(&t, 0);
        feed_range(part, tokens, 0, ends[i]);
        tiny_must(mf_sequence_save_file(part, path, &why), &why);
        mf_sequence_close(part);
        snprintf(at, sizeof at, "%zu", ends[i]);
        pid_t child = fork();
        if (child == 0) {
            execl("/proc/self/exe", "snapshot", path, at, (char *)NULL);
            _exit(127);
        }
        assert_true(child > 0 && waitpid(child, &result, 0) == child);
        assert_int_equal(result, 0);
        tiny_must(file_read_whole_new(&found, &count, &files_posix, path, 1 << 20, &why), &why);
        assert_int_equal(count, tiny_standard.vocab_size * sizeof(float));
        assert_memory_equal(found, mf_sequence_logits(whole), count);
        free(found);
        unlink(path);
    }
    mf_sequence_close(whole);
    tiny_engine_close(&t);
}

int main(int count, char **arguments)
{
    if (count == 3) return continue_in_file(arguments[1], (size_t)atoi(arguments[2]));
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_snapshot_goes_on_with_the_same_bits),
        cmocka_unit_test(every_flipped_bit_is_found),
        cmocka_unit_test(another_model_is_refused_by_name),
        cmocka_unit_test(another_type_of_keys_and_values_is_refused_by_name),
        cmocka_unit_test(nothing_behind_the_end_is_saved),
        cmocka_unit_test(a_snapshot_is_a_function_of_tokens_and_phases),
        cmocka_unit_test(a_new_process_goes_on_with_the_same_bits),
        cmocka_unit_test(files_are_whole_or_not_there),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
