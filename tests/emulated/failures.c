/* failures.c: whatever allocation, copy or launch of the device fails, the step fails with an error
 * that says so, the sequence is as it was before, and the next step succeeds with the same bits.
 *
 * The device is the emulated one beside this program, which fails on demand. */
#include "support/test.h"

#include "support/tiny_engine.h"

#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <stdio.h>

enum { PROMPT = 7, GENERATED = 3, LOGITS_MAX = 128 };

static void (*device_fail)(enum emulated_kind kind, unsigned nth);
static int (*device_disarm)(void);

static const struct tiny_shape *const shapes[] = { &tiny_standard, &tiny_odd, &tiny_affine };

/* A model on the device. */
struct place {
    struct tiny_engine t;
    int32_t tokens[PROMPT + GENERATED];
    float expected[1 + GENERATED][LOGITS_MAX]; /* after the prompt and after each token */
    size_t bytes;                              /* of logits */
};

static mf_status open_model(struct place *p, mf_error *why)
{
    mf_engine_options options = { .struct_size = sizeof options,
                                  .thread_count = 1,
                                  .allocator = &p->t.heap.allocator,
                                  .files = &p->t.files.files,
                                  .backend = "cuda" };
    p->t.engine = NULL;
    p->t.model = NULL;
    mf_status status = mf_engine_open(&p->t.engine, &options, why);
    if (status == MF_OK) status = mf_model_open(&p->t.model, p->t.engine, TINY_PATH, NULL, why);
    return status;
}

static void close_model(struct place *p)
{
    mf_model_close(p->t.model);
    mf_engine_close(p->t.engine);
    assert_int_equal(p->t.heap.live_bytes, 0);
}

static void prepare(struct place *p, const struct tiny_shape *shape)
{
    memset(p, 0, sizeof *p);
    tiny_model_init(&p->t.tiny, shape);
    tiny_model_write(&p->t.tiny);
    failing_allocator_init(&p->t.heap);
    failing_files_init(&p->t.files, &p->t.tiny.files.files);
    tiny_tokens(p->tokens, &p->t, PROMPT + GENERATED);
    p->bytes = shape->vocab_size * sizeof(float);
}

/* Feed number i: the prompt, then a token at a time. */
static mf_status feed(struct place *p, mf_sequence *sequence, size_t i, mf_error *why)
{
    if (i == 0) return mf_sequence_feed(sequence, MF_PHASE_PROMPT, p->tokens, PROMPT, why);
    return mf_sequence_feed(sequence, MF_PHASE_GENERATED, p->tokens + PROMPT + i - 1, 1, why);
}

static void learn_logits(struct place *p)
{
    mf_error why = { 0 };
    mf_sequence *sequence = tiny_sequence(&p->t, PROMPT + GENERATED);
    for (size_t i = 0; i <= GENERATED; i++) {
        tiny_must(feed(p, sequence, i, &why), &why);
        memcpy(p->expected[i], mf_sequence_logits(sequence), p->bytes);
    }
    mf_sequence_close(sequence);
}

/* Feeds everything while the nth call of a kind fails; a feed that fails is made once more.  True: a
 * call has failed. */
static bool feeds_survive(struct place *p, enum emulated_kind kind, unsigned nth)
{
    mf_sequence *sequence = tiny_sequence(&p->t, PROMPT + GENERATED);
    bool fired = false;
    device_fail(kind, nth);
    for (size_t i = 0; i <= GENERATED; i++) {
        mf_error why = { 0 };
        size_t before = mf_sequence_position(sequence);
        mf_status status = feed(p, sequence, i, &why);
        if (status != MF_OK) {
            fired = device_disarm();
            assert_true(fired);
            assert_true(status == MF_ERR_DEVICE || status == MF_ERR_MEMORY);
            assert_true(why.text[0] != '\0');
            assert_int_equal(mf_sequence_position(sequence), before);
            why = (mf_error){ 0 };
            tiny_must(feed(p, sequence, i, &why), &why);
        }
        if (memcmp(mf_sequence_logits(sequence), p->expected[i], p->bytes) != 0)
            fail_msg("feed %zu gives other logits when call %u of kind %d fails", i, nth, kind);
    }
    fired = device_disarm() || fired;
    mf_sequence_close(sequence);
    return fired;
}

/* From the first step on, for which weights and experts are copied: a new model for every call that
 * fails. */
static void every_failure_of_a_first_step_is_survived(void **state)
{
    (void)state;
    static struct place place;
    for (size_t s = 0; s < COUNT_OF(shapes); s++) {
        mf_error why = { 0 };
        unsigned tried[EMULATED_KINDS] = { 0 };
        prepare(&place, shapes[s]);
        tiny_must(open_model(&place, &why), &why);
        learn_logits(&place);
        close_model(&place);
        for (int kind = 0; kind < EMULATED_KINDS; kind++) {
            bool fired = true;
            for (unsigned nth = 1; fired; nth += 1 + nth / 6) {
                tiny_must(open_model(&place, &why), &why);
                fired = feeds_survive(&place, (enum emulated_kind)kind, nth);
                close_model(&place);
                tried[kind]++;
            }
        }
        for (int kind = 0; kind < EMULATED_KINDS; kind++) assert_true(tried[kind] > 5);
        tiny_model_free(&place.t.tiny);
    }
}

/* Of a model in use, steps of which are recorded. */
static void every_failure_of_a_later_step_is_survived(void **state)
{
    (void)state;
    static struct place place;
    mf_error why = { 0 };
    prepare(&place, &tiny_standard);
    tiny_must(open_model(&place, &why), &why);
    learn_logits(&place);
    for (int kind = 0; kind < EMULATED_KINDS; kind++) {
        unsigned nth = 1;
        while (feeds_survive(&place, (enum emulated_kind)kind, nth)) nth += 1 + nth / 6;
        assert_true(kind == EMULATED_ALLOCATION || nth > 10);
    }
    close_model(&place);
    tiny_model_free(&place.t.tiny);
}

static void every_failure_at_open_is_survived(void **state)
{
    (void)state;
    static struct place place;
    mf_error why = { 0 };
    prepare(&place, &tiny_standard);
    for (int kind = 0; kind < EMULATED_KINDS; kind++) {
        bool fired = true;
        for (unsigned nth = 1; fired; nth++) {
            why = (mf_error){ 0 };
            device_fail((enum emulated_kind)kind, nth);
            mf_status status = open_model(&place, &why);
            fired = device_disarm();
            assert_true(status == MF_OK || (fired && why.text[0] != '\0'));
            close_model(&place);
        }
    }
    tiny_must(open_model(&place, &why), &why);
    learn_logits(&place);
    close_model(&place);
    tiny_model_free(&place.t.tiny);
}

static bool find_device(void)
{
    mf_engine_options options = { .struct_size = sizeof options, .backend = "cuda" };
    mf_engine *engine = NULL;
    mf_error why = { 0 };
    if (mf_engine_open(&engine, &options, &why) != MF_OK) {
        fprintf(stderr, "SKIPPED: %s\n", why.text);
        return false;
    }
    mf_engine_close(engine);
    return true;
}

/* The plugin that the library has loaded, once more. */
static void find_switches(const char *program)
{
    char path[PATH_CAPACITY];
    const char *slash = strrchr(program, '/');
    snprintf(path, sizeof path, "%.*s/moeflux-cuda.so", slash ? (int)(slash - program) : 1,
             slash ? program : ".");
    void *plugin = dlopen(path, RTLD_NOW | RTLD_NOLOAD);
    assert_non_null(plugin);
    *(void **)&device_fail = dlsym(plugin, "emulated_fail");
    *(void **)&device_disarm = dlsym(plugin, "emulated_disarm");
    assert_true(device_fail && device_disarm);
}

int main(int argc, char **argv)
{
    (void)argc;
    if (!find_device()) return 77;
    find_switches(argv[0]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_failure_at_open_is_survived),
        cmocka_unit_test(every_failure_of_a_first_step_is_survived),
        cmocka_unit_test(every_failure_of_a_later_step_is_survived),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
