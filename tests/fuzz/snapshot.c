/* Any bytes as the snapshot of a sequence of a tiny hybrid model: as they are, and with the model's
 * identity and the checksums put right, so that what lies behind them is looked at.  What is refused
 * changes nothing; what is accepted is saved as it was and can be continued. */
#include "base/checksum.h"
#include "support/fuzzed_model.h"
#include "support/tiny_model.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Offsets in the header (state/snapshot.c). */
enum {
    AT_CONTENT_CHECKSUM = 80,
    AT_IDENTITY = 88,
    AT_HEADER_CHECKSUM = 152,
    HEADER = 160,
    CONTEXT = 16,
    INPUT_MAX = 1 << 20
};

struct bench {
    mf_sequence *sequence;
    uint8_t *saved; /* of the sequence */
    size_t saved_bytes;
};

static uint8_t *save(const mf_sequence *sequence, size_t *bytes)
{
    *bytes = (size_t)mf_sequence_snapshot_bytes(sequence);
    uint8_t *saved = malloc(*bytes);
    must(saved && mf_sequence_save(sequence, saved, *bytes, NULL, NULL) == MF_OK);
    return saved;
}

static void put_right(uint8_t *data, size_t size, const uint8_t *valid)
{
    if (size < HEADER) return;
    memcpy(data + AT_IDENTITY, valid + AT_IDENTITY, AT_HEADER_CHECKSUM - AT_IDENTITY);
    uint64_t sum = checksum_of(data + HEADER, size - HEADER);
    memcpy(data + AT_CONTENT_CHECKSUM, &sum, sizeof sum);
    sum = checksum_of(data, AT_HEADER_CHECKSUM);
    memcpy(data + AT_HEADER_CHECKSUM, &sum, sizeof sum);
}

/* Once; it stays open. */
static struct bench *open_bench(void)
{
    static struct bench bench;
    static struct tiny_model tiny;
    static mf_engine *engine;
    static mf_model *model;
    static const int32_t tokens[] = { 1, 2, 3 };
    if (bench.sequence) return &bench;
    tiny_model_init(&tiny, &tiny_odd);
    tiny_model_write(&tiny);
    mf_engine_options options = { .struct_size = sizeof options,
                                  .thread_count = 1,
                                  .backend = "reference",
                                  .files = &tiny.files.files };
    mf_sequence_options small = { .struct_size = sizeof small, .context_length = CONTEXT };
    must(mf_engine_open(&engine, &options, NULL) == MF_OK);
    must(mf_model_open(&model, engine, TINY_PATH, NULL, NULL) == MF_OK);
    must(mf_sequence_open(&bench.sequence, model, &small, NULL) == MF_OK);
    must(mf_sequence_feed(bench.sequence, MF_PHASE_PROMPT, tokens, 3, NULL) == MF_OK);
    bench.saved = save(bench.sequence, &bench.saved_bytes);
    uint8_t *same = save(bench.sequence, &bench.saved_bytes);
    put_right(same, bench.saved_bytes, bench.saved);
    must(memcmp(same, bench.saved, bench.saved_bytes) == 0); /* the offsets are right */
    free(same);
    return &bench;
}

static void use(mf_sequence *sequence)
{
    size_t bytes, again_bytes;
    uint8_t *saved = save(sequence, &bytes);
    must(mf_sequence_load(sequence, saved, bytes, NULL) == MF_OK);
    uint8_t *again = save(sequence, &again_bytes);
    must(bytes == again_bytes && memcmp(saved, again, bytes) == 0);
    free(saved);
    free(again);
    for (int32_t token = 0; token < 2; token++) {
        uint32_t position = mf_sequence_position(sequence);
        mf_status status = mf_sequence_feed(sequence, token ? MF_PHASE_GENERATED : MF_PHASE_PROMPT,
                                            &token, 1, NULL);
        must(status == MF_OK || status == MF_ERR_NOT_FINITE || status == MF_ERR_CONTEXT_FULL);
        must(mf_sequence_position(sequence) == position + (status == MF_OK));
        must(engine_sequence_check_invariants(&sequence->sequence));
    }
}

static void load(const struct bench *bench, const uint8_t *data, size_t size)
{
    mf_sequence *sequence = bench->sequence;
    mf_error why = { 0 };
    mf_status status = mf_sequence_load(sequence, data, size, &why);
    must(engine_sequence_check_invariants(&sequence->sequence));
    if (status == MF_OK) {
        use(sequence);
        must(mf_sequence_load(sequence, bench->saved, bench->saved_bytes, NULL) == MF_OK);
    }
    must(status == MF_OK || why.text[0]);
    size_t bytes;
    uint8_t *now = save(sequence, &bytes);
    must(bytes == bench->saved_bytes && memcmp(now, bench->saved, bytes) == 0);
    free(now);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct bench *bench = open_bench();
    if (size > INPUT_MAX) return 0;
    uint8_t *copy = malloc(size ? size : 1);
    must(copy != NULL);
    if (size > 0) memcpy(copy, data, size);
    load(bench, copy, size);
    put_right(copy, size, bench->saved);
    load(bench, copy, size);
    struct state_pool_sizes sizes = state_pool_sizes(&bench->sequence->model->room.pool);
    must(sizes.held[BLOCK_PAGE] == 1 && sizes.held[BLOCK_RECURRENT] == 1);
    free(copy);
    return 0;
}
