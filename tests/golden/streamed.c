/* streamed.c: the bits do not depend on where the experts are.
 *
 *     streamed NAME     pebble, or a golden case
 *
 * A prompt in chunks and some tokens one by one are computed with all experts in
 * memory; then again with the file mapped, with random budgets down to the least, both
 * read engines, with and without read-ahead, one and two threads, and with files that
 * fail every so often.  Every logit of every position must be the same.
 *
 * And a piece of a prompt, or a step of 1 to 32 sequences, reads no expert twice, whatever the
 * budget. */
#include "support/test.h"

#include "api/handles.h"
#include "base/status.h"
#include "experts/store_internal.h"
#include "support/failing_files.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { PROMPT = 70, CHUNK = 32, DECODED = 12, POSITIONS = PROMPT + DECODED, ROUNDS = 12 };
enum { SEQUENCES = 32 };

static char path[PATH_CAPACITY];
static int32_t tokens[POSITIONS];
static uint32_t vocab_size;
static uint64_t resident_bytes, all_bytes; /* of the weights without experts; of all slots */
static float *expected;                    /* [POSITIONS][vocab_size] */
static float *found;
static struct failing_files failing;
static bool engine_was_left_out;

static void must(mf_status status, const mf_error *why)
{
    if (status != MF_OK) fail_msg("%s (%s)", why->text, why->origin);
}

static const char *const aheads[] = { NULL, "never", "always" };

struct setting {
    uint64_t expert_bytes; /* budget for slots; 0: no limit at all */
    const char *reader;
    uint32_t threads, sequences; /* sequences 0: one */
    const char *read_ahead;
    const char *mode;
    bool unreliable; /* files that fail now and then */
    bool counted;    /* files that write down what was read */
};

/* ------------------------------------------------------------- what was read */

struct one_read {
    const void *handle;
    uint64_t offset;
};

enum { READS_MAX = 200000 };
static struct one_read *reads_done; /* [READS_MAX] */
static atomic_size_t reads_count;
static mf_files counting_files;

static int64_t counted_read(void *user, void *handle, uint64_t offset, void *out, size_t count)
{
    size_t index = atomic_fetch_add(&reads_count, 1);
    if (index < READS_MAX) reads_done[index] = (struct one_read){ handle, offset };
    return files_posix.read(user, handle, offset, out, count);
}

static int compare_reads(const void *a, const void *b)
{
    const struct one_read *x = a, *y = b;
    if (x->handle != y->handle) return x->handle < y->handle ? -1 : 1;
    return (x->offset > y->offset) - (x->offset < y->offset);
}

/* How many of the reads were of a place that another one had begun at. */
static size_t reads_repeated(void)
{
    size_t repeated = 0;
    assert_true(reads_count <= READS_MAX);
    qsort(reads_done, reads_count, sizeof *reads_done, compare_reads);
    for (size_t i = 1; i < reads_count; i++)
        repeated += compare_reads(&reads_done[i - 1], &reads_done[i]) == 0;
    return repeated;
}

struct opened {
    mf_engine *engine;
    mf_model *model;
    mf_sequence *sequence;
};

static mf_status open_all(struct opened *out, const struct setting *setting, mf_error *why)
{
    *out = (struct opened){ 0 };
    failing_files_init(&failing, &files_posix);
    mf_engine_options engine = { .struct_size = sizeof engine,
                                 .thread_count = setting->threads,
                                 .files = setting->unreliable ? &failing.files : NULL };
    if (setting->counted) engine.files = &counting_files;
    mf_model_options model = { .struct_size = sizeof model,
                               .reader = setting->reader,
                               .read_ahead = setting->read_ahead,
                               .expert_mode = setting->mode,
                               .context_length = 128,
                               .sequences = setting->sequences,
                               .chunk_rows = CHUNK };
    if (setting->expert_bytes) model.memory_bytes = resident_bytes + setting->expert_bytes;
    mf_status status = mf_engine_open(&out->engine, &engine, why);
    if (status == MF_OK) status = mf_model_open(&out->model, out->engine, path, &model, why);
    if (status == MF_OK) status = mf_sequence_open(&out->sequence, out->model, NULL, why);
    return status;
}

static void close_all(struct opened *opened)
{
    mf_sequence_close(opened->sequence);
    mf_model_close(opened->model);
    mf_engine_close(opened->engine);
}

static void keep_logits(void *user, size_t index, const float *logits)
{
    memcpy((float *)user + index * vocab_size, logits, vocab_size * sizeof(float));
}

/* A feed that fails leaves the sequence as it was: the same call works when the file does. */
static void feed(const struct opened *o, float *out, size_t first, size_t count)
{
    mf_error why = { 0 };
    mf_status status;
    unsigned failures = 0;
    for (;;) {
        status = mf_sequence_feed_each(
            o->sequence, count == 1 ? MF_PHASE_GENERATED : MF_PHASE_PROMPT, tokens + first, count,
            keep_logits, out + first * vocab_size, &why);
        assert_true(expert_store_check_invariants(o->model->experts));
        if (status != MF_ERR_IO || failing.fail_every == 0) break;
        assert_non_null(strstr(why.text, "expert "));
        if (++failures == 5) failing.fail_every = 0;
    }
    must(status, &why);
}

static void compute(const struct opened *o, float *out)
{
    feed(o, out, 0, PROMPT);
    for (size_t i = PROMPT; i < POSITIONS; i++) feed(o, out, i, 1);
}

static void check_setting(const struct setting *setting)
{
    struct opened o;
    mf_error why = { 0 };
    mf_status status = open_all(&o, setting, &why);
    if (status == MF_ERR_UNSUPPORTED) {
        engine_was_left_out = true;
        print_message("    %s is left out: %s\n", setting->reader, why.text);
        close_all(&o);
        return;
    }
    must(status, &why);
    if (setting->unreliable) failing.fail_every = 7;
    memset(found, 0xff, (size_t)POSITIONS * vocab_size * sizeof *found);
    compute(&o, found);
    struct expert_store_sizes sizes = expert_store_sizes(o.model->experts);
    struct expert_counters counters = expert_store_counters(o.model->experts);
    print_message("    %s, %s, %u threads: %llu of %llu slots, %llu hits, %llu misses, "
                  "ahead %llu of %llu\n",
                  sizes.mode, sizes.reader, setting->threads, (unsigned long long)sizes.slots,
                  (unsigned long long)sizes.total, (unsigned long long)counters.hits,
                  (unsigned long long)counters.misses, (unsigned long long)counters.ahead_hits,
                  (unsigned long long)counters.ahead_reads);
    if (setting->mode)
        assert_string_equal(sizes.mode, "mapped");
    else
        assert_true(sizes.slot_bytes <= setting->expert_bytes);
    assert_memory_equal(found, expected, (size_t)POSITIONS * vocab_size * sizeof *found);
    close_all(&o);
}

static void mapped_experts_give_the_same_bits(void **state)
{
    (void)state;
    for (unsigned round = 0; round < 4; round++) {
        struct setting setting = { .threads = 1 + round % 2,
                                   .mode = "mapped",
                                   .read_ahead = aheads[round % 3] };
        check_setting(&setting);
    }
}

/* The smallest budget that is accepted; it includes the engine room, which grows with the threads,
 * and the sequences. */
static uint64_t least_bytes(uint32_t threads, uint32_t sequences)
{
    uint64_t refused = 0, accepted = 2 * all_bytes + (32 << 20);
    while (accepted - refused > 1) {
        struct setting setting = { .expert_bytes = refused + (accepted - refused) / 2,
                                   .threads = threads,
                                   .sequences = sequences };
        struct opened o;
        mf_error why = { 0 };
        mf_status status = open_all(&o, &setting, &why);
        if (status == MF_OK) {
            accepted = setting.expert_bytes;
        } else {
            assert_int_equal(status, MF_ERR_MEMORY);
            refused = setting.expert_bytes;
        }
        close_all(&o);
    }
    return accepted;
}

/* ------------------------------------------------------------------- tests */

static void smallest_plan_is_one_token_and_two_slots(void **state)
{
    (void)state;
    struct opened o;
    mf_error why = { 0 };
    struct setting setting = { .expert_bytes = least_bytes(1, 1), .threads = 1 };
    must(open_all(&o, &setting, &why), &why);
    assert_int_equal(expert_store_sizes(o.model->experts).slots,
                     o.model->model.config.experts_per_token + 2);
    close_all(&o);
}

static void any_budget_gives_the_same_bits(void **state)
{
    (void)state;
    const uint64_t leasts[] = { least_bytes(1, 1), least_bytes(2, 1) };
    for (unsigned round = 0; round < ROUNDS; round++) {
        uint32_t threads = 1 + round / 2 % 2;
        uint64_t least = leasts[threads - 1];
        struct setting setting = { .expert_bytes = least + (uint64_t)rand() % all_bytes,
                                   .reader = round % 2 ? "threads" : "io_uring",
                                   .threads = threads,
                                   .read_ahead = aheads[round % 3] };
        if (round < 4) setting.expert_bytes = least;
        if (round == 4) setting.expert_bytes = 2 * all_bytes + (32 << 20); /* resident */
        check_setting(&setting);
    }
}

static void unreliable_files_give_the_same_bits(void **state)
{
    (void)state;
    uint64_t least = least_bytes(2, 1);
    for (unsigned round = 0; round < 4; round++) {
        struct setting setting = { .expert_bytes = least + round * all_bytes / 4,
                                   .threads = 1 + round % 2,
                                   .read_ahead = aheads[round % 3],
                                   .unreliable = true };
        check_setting(&setting);
    }
}

static void count_reads(void)
{
    counting_files = files_posix;
    counting_files.read = counted_read;
    counting_files.descriptor = NULL; /* every read comes by here */
    reads_done = malloc(READS_MAX * sizeof *reads_done);
}

static void a_prompt_reads_no_expert_twice(void **state)
{
    (void)state;
    uint64_t least = least_bytes(2, 1);
    count_reads();
    for (unsigned round = 0; round < 9; round++) {
        struct setting setting = { .expert_bytes = least + (uint64_t)rand() % all_bytes,
                                   .threads = 1 + round % 2,
                                   .read_ahead = aheads[round % 3],
                                   .counted = true };
        struct opened o;
        mf_error why = { 0 };
        if (round < 3) setting.expert_bytes = least;
        must(open_all(&o, &setting, &why), &why);
        reads_count = 0;
        must(mf_sequence_feed(o.sequence, MF_PHASE_PROMPT, tokens, CHUNK, &why), &why);
        expert_store_drop_all(o.model->experts); /* waits for what is still being read ahead */
        size_t reads = reads_count, repeated = reads_repeated();
        print_message("    %zu reads, %zu repeated\n", reads, repeated);
        assert_true(reads > 0);
        assert_int_equal(repeated, 0);
        close_all(&o);
    }
    free(reads_done);
}

/* Forgets the reads that are not the last piece of an expert: a read-ahead that is given up may have
 * begun, and is not an expert that was read. */
static void keep_last_pieces(const struct expert_store *store)
{
    size_t kept = 0, count = reads_count;
    for (size_t i = 0; i < count; i++) {
        bool last = false;
        for (uint32_t place = 0; place < store->layers * store->experts && !last; place++) {
            struct expert_layout layout;
            if (class_of(store, place) == NO_CLASS) continue; /* a dense layer */
            reading_layout(&layout, store, place);
            const struct expert_piece *piece = &layout.pieces[layout.piece_count - 1];
            last = store->options.directory->files[piece->file].handle == reads_done[i].handle &&
                   piece->offset == reads_done[i].offset;
        }
        if (last) reads_done[kept++] = reads_done[i];
    }
    reads_count = kept;
}

/* Steps of a token each, the sequences at different positions; returns how many of the experts that
 * the step read it had read before. */
static size_t step_together(mf_model *model, mf_sequence *const *sequences, size_t count,
                            size_t step)
{
    mf_part parts[SEQUENCES];
    int32_t ids[SEQUENCES];
    mf_error why = { 0 };
    for (size_t i = 0; i < count; i++) {
        ids[i] = tokens[(7 * i + step) % POSITIONS];
        parts[i] = (mf_part){ .sequence = sequences[i],
                              .phase = MF_PHASE_GENERATED,
                              .tokens = &ids[i],
                              .count = 1,
                              .why = &why };
    }
    reads_count = 0;
    must(mf_model_step(model, parts, count, &why), &why);
    while (reading_collect(model->experts, true)) continue;
    keep_last_pieces(model->experts);
    return reads_repeated();
}

static void a_step_of_many_sequences_reads_no_expert_twice(void **state)
{
    (void)state;
    static const size_t counts[] = { 1, 2, 3, 4, 5, 8, 16, SEQUENCES };
    uint64_t least = least_bytes(2, SEQUENCES);
    count_reads();
    for (size_t round = 0; round < 3 * COUNT_OF(counts); round++) {
        size_t count = counts[round / 3], reads = 0, uses = 0;
        struct setting setting = { .expert_bytes = least + all_bytes / 8 * (round % 5),
                                   .threads = 1 + round % 2,
                                   .sequences = SEQUENCES,
                                   .read_ahead = aheads[round % 3],
                                   .counted = true };
        struct opened o;
        mf_sequence *sequences[SEQUENCES];
        mf_error why = { 0 };
        must(open_all(&o, &setting, &why), &why);
        sequences[0] = o.sequence;
        must(mf_sequence_feed(o.sequence, MF_PHASE_PROMPT, tokens, 3, &why), &why);
        for (size_t i = 1; i < count; i++)
            must(mf_sequence_fork(&sequences[i], o.sequence, &why), &why);
        for (size_t step = 0; step < 6; step++) {
            assert_int_equal(step_together(o.model, sequences, count, step), 0);
            reads += reads_count;
        }
        for (uint32_t layer = 0; layer < o.model->model.config.layer_count; layer++)
            for (uint32_t e = 0; e < o.model->model.config.experts; e++)
                uses += expert_store_uses(o.model->experts, layer)[e];
        print_message("    %zu sequences: %zu uses, %zu read\n", count, uses, reads);
        for (size_t i = 1; i < count; i++) mf_sequence_close(sequences[i]);
        close_all(&o);
    }
    free(reads_done);
}

static int set_up(void **state)
{
    (void)state;
    struct opened o;
    mf_error why = { 0 };
    struct setting setting = { .threads = 1 };
    must(open_all(&o, &setting, &why), &why);
    vocab_size = mf_model_vocab_size(o.model);
    resident_bytes = o.model->model.weights.resident_bytes;
    all_bytes = expert_store_sizes(o.model->experts).slot_bytes;
    assert_string_equal(expert_store_sizes(o.model->experts).mode, "resident");
    srand(3);
    for (size_t i = 0; i < POSITIONS; i++) tokens[i] = (int32_t)((uint32_t)rand() % vocab_size);
    expected = malloc((size_t)POSITIONS * vocab_size * sizeof *expected);
    found = malloc((size_t)POSITIONS * vocab_size * sizeof *found);
    compute(&o, expected);
    close_all(&o);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    free(expected);
    free(found);
    return 0;
}

static bool is_checkpoint(const char *root, const char *below, const char *name)
{
    char config[PATH_CAPACITY + 16];
    if (!root) return false;
    snprintf(path, sizeof path, "%s/%s/%s", root, below, name);
    snprintf(config, sizeof config, "%s/config.json", path);
    return access(config, R_OK) == 0;
}

static bool find_checkpoint(const char *name)
{
    const char *source = getenv("MOEFLUX_SOURCE");
    return is_checkpoint(source, "models", name) ||
           is_checkpoint(source, "tests/fixtures/golden", name) ||
           is_checkpoint(getenv("MOEFLUX_FIXTURES"), "golden", name) ||
           is_checkpoint(getenv("MOEFLUX_FIXTURES"), "golden2", name);
}

/* The tests above leave out a read engine that this machine lacks: say so in the count. */
static void every_read_engine_was_tried(void **state)
{
    (void)state;
    if (!engine_was_left_out) return;
    print_message("    SKIPPED: a read engine could not be opened here\n");
    skip();
}

int main(int count, char **arguments)
{
    if (count != 2 || !find_checkpoint(arguments[1])) {
        fprintf(stderr,
                "SKIPPED: %s is in none of $MOEFLUX_SOURCE/models, its "
                "tests/fixtures/golden, and $MOEFLUX_FIXTURES/golden and golden2\n",
                count == 2 ? arguments[1] : "(no name given)");
        return EXIT_SKIPPED;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(smallest_plan_is_one_token_and_two_slots),
        cmocka_unit_test(any_budget_gives_the_same_bits),
        cmocka_unit_test(mapped_experts_give_the_same_bits),
        cmocka_unit_test(unreliable_files_give_the_same_bits),
        cmocka_unit_test(a_prompt_reads_no_expert_twice),
        cmocka_unit_test(a_step_of_many_sequences_reads_no_expert_twice),
        cmocka_unit_test(every_read_engine_was_tried),
    };
    return cmocka_run_group_tests_name(arguments[1], tests, set_up, tear_down);
}
