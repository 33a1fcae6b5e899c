/* streaming: what can happen to a file while its experts are streamed from it.
 *
 * A checkpoint and its packed form, in a directory of their own, are read with room for one
 * token's experts and two; then reads fail, are short or slow, or the file itself is cut,
 * removed or changed under the running sequence.  There is never a wrong token: a step gives
 * the logits it gives without trouble, or an error that names file, layer and expert; and
 * when the trouble is over the same sequence goes on as if there had been none. */
#include "support/test.h"

#include "api/handles.h"
#include "base/status.h"
#include "convert/convert.h"
#include "support/failing_allocator.h"
#include "support/failing_files.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PROMPT = 24, TOKENS = 40 };

static const char *const side_files[] = { "config.json", "tokenizer.json", "tokenizer_config.json",
                                          "generation_config.json" };
static char root[64], plain[96], packed[96];
static int32_t tokens[TOKENS];
static uint32_t vocab_size;
static float *expected; /* [TOKENS][vocab_size] */
static struct failing_files failing;
static bool engine_was_left_out;
static struct failing_allocator heap;

static void must(mf_status status, const mf_error *why)
{
    if (status != MF_OK) fail_msg("%s (%s)", why->text, why->origin);
}

/* ------------------------------------------------------------------- files */

static void copy_file(const char *from, const char *to)
{
    char *bytes;
    size_t count;
    mf_error why = { 0 };
    if (file_read_whole_new(&bytes, &count, &files_posix, from, 64 << 20, &why) != MF_OK) return;
    int descriptor = open(to, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    assert_true(descriptor >= 0);
    assert_int_equal(write(descriptor, bytes, count), count);
    close(descriptor);
    free(bytes);
}

/* A file with weights of the checkpoint that is open, and its bytes. */
struct saved {
    char path[PATH_CAPACITY];
    char *bytes;
    size_t count;
};

static void save(struct saved *out, const struct file *file)
{
    mf_error why = { 0 };
    snprintf(out->path, sizeof out->path, "%s", file->path);
    must(file_read_whole_new(&out->bytes, &out->count, &files_posix, file->path, 64 << 20, &why),
         &why);
}

static void write_back(const struct saved *file)
{
    int descriptor = open(file->path, O_WRONLY | O_CREAT, 0600);
    assert_int_equal(pwrite(descriptor, file->bytes, file->count, 0), file->count);
    close(descriptor);
}

static struct saved *saved; /* [saved_count] all files of the model that is open */
static size_t saved_count;

static void save_all(const struct tensor_directory *directory)
{
    saved_count = directory->file_count;
    saved = calloc(saved_count, sizeof *saved);
    for (size_t i = 0; i < saved_count; i++) save(&saved[i], &directory->files[i]);
}

static void restore_all(void)
{
    for (size_t i = 0; i < saved_count; i++) {
        write_back(&saved[i]);
        free(saved[i].bytes);
    }
    free(saved);
}

static void change_bytes(const struct saved *file)
{
    char *changed = malloc(file->count);
    for (size_t i = 0; i < file->count; i++) changed[i] = (char)(file->bytes[i] ^ 1);
    int descriptor = open(file->path, O_WRONLY);
    assert_int_equal(pwrite(descriptor, changed, file->count, 0), file->count);
    close(descriptor);
    free(changed);
}

/* ------------------------------------------------------------------ opening */

static const char *const aheads[] = { NULL, "never", "always" };

struct setting {
    const char *path, *reader;
    bool through_functions; /* that can fail */
    const char *mode;
    const char *read_ahead;
};

struct opened {
    mf_engine *engine;
    mf_model *model;
    mf_sequence *sequence;
};

/* False: this machine has no such reader. */
static bool open_all(struct opened *o, const struct setting *setting)
{
    mf_error why = { 0 };
    failing_files_init(&failing, &files_posix);
    failing_allocator_init(&heap);
    mf_engine_options engine = { .struct_size = sizeof engine,
                                 .thread_count = 2,
                                 .allocator = &heap.allocator,
                                 .files = setting->through_functions ? &failing.files : NULL };
    mf_model_options model = { .struct_size = sizeof model,
                               .reader = setting->reader,
                               .read_ahead = setting->read_ahead,
                               .expert_mode = setting->mode,
                               .context_length = 64,
                               .chunk_rows = 16 };
    must(mf_engine_open(&o->engine, &engine, &why), &why);
    mf_status status = mf_model_open(&o->model, o->engine, setting->path, &model, &why);
    if (status == MF_ERR_UNSUPPORTED) {
        engine_was_left_out = true;
        print_message("    left out: %s\n", why.text);
        mf_engine_close(o->engine);
        return false;
    }
    must(status, &why);
    must(mf_sequence_open(&o->sequence, o->model, NULL, &why), &why);
    return true;
}

/* As few slots as there may be. */
static void make_small(const struct opened *o)
{
    struct expert_store_sizes sizes = expert_store_sizes(o->model->experts);
    uint64_t slot = sizes.slot_bytes / sizes.slots;
    uint64_t least = slot * (o->model->model.config.experts_per_token + 2);
    for (mf_status status = MF_ERR_MEMORY; status != MF_OK; least += slot / 4)
        status = expert_store_set_budget(o->model->experts, least, NULL);
}

static void close_all(struct opened *o)
{
    mf_sequence_close(o->sequence);
    mf_model_close(o->model);
    mf_engine_close(o->engine);
    assert_int_equal(heap.live_bytes, 0);
}

/* ----------------------------------------------------------------- a course */

static void check_logits(const struct opened *o, size_t position)
{
    assert_memory_equal(mf_sequence_logits(o->sequence), expected + position * vocab_size,
                        vocab_size * sizeof(float));
}

/* Everything is as it should be, or there is an error of the right kind. */
static bool feed(const struct opened *o, size_t first, size_t count, mf_error *why)
{
    mf_status status = mf_sequence_feed(
        o->sequence, count == 1 ? MF_PHASE_GENERATED : MF_PHASE_PROMPT, tokens + first, count, why);
    assert_true(expert_store_check_invariants(o->model->experts));
    if (status == MF_OK) {
        check_logits(o, first + count - 1);
        return true;
    }
    assert_int_equal(status, MF_ERR_IO);
    if (!strstr(why->text, "layer ") || !strstr(why->text, ", expert ") || !strstr(why->text, root))
        fail_msg("%s", why->text);
    return false;
}

/* From `first` on to the end, each step again until it succeeds. */
static unsigned feed_rest(const struct opened *o, size_t first, unsigned attempts)
{
    unsigned failures = 0;
    for (size_t i = first; i < TOKENS;) {
        mf_error why = { 0 };
        size_t count = i < PROMPT ? PROMPT - i : 1;
        if (feed(o, i, count, &why))
            i += count;
        else if (++failures == attempts)
            failing.fail_every = 0;
    }
    return failures;
}

static const struct setting settings[] = {
    { plain, "threads", false, NULL, "never" },
    { plain, "threads", false, NULL, "always" },
    { plain, "io_uring", false, NULL, "never" },
    { plain, "io_uring", false, NULL, "always" },
    { plain, "threads", false, "mapped", "always" },
    { packed, "threads", false, NULL, "always" },
    { packed, "io_uring", false, NULL, "never" },
    { packed, "threads", false, "mapped", "never" },
};

/* -------------------------------------------------------------------- tests */

/* Nth reads that fail, reads in pieces, slow reads, and all at once. */
static void failing_short_and_slow_reads(void **state)
{
    (void)state;
    static const uint64_t every[] = { 0, 2, 3, 7, 50 };
    static const char *const paths[] = { plain, packed };
    for (size_t p = 0; p < COUNT_OF(paths); p++)
        for (size_t e = 0; e < COUNT_OF(every); e++)
            for (unsigned how = 0; how < 4; how++) {
                struct setting setting = { .path = paths[p],
                                           .through_functions = true,
                                           .read_ahead = aheads[how % 3] };
                struct opened o;
                assert_true(open_all(&o, &setting));
                make_small(&o);
                failing.fail_every = every[e];
                failing.piece_bytes = how & 1 ? 1000 : 0;
                failing.delay_us = how & 2 ? 100 : 0;
                unsigned failures = feed_rest(&o, 0, 20);
                if (every[e] == 0) assert_int_equal(failures, 0);
                close_all(&o);
            }
}

/* Cut at some place after the prompt: an error, until the file is whole again. */
static void a_file_is_cut_under_a_sequence(void **state)
{
    (void)state;
    for (size_t s = 0; s < COUNT_OF(settings); s++) {
        struct opened o;
        if (!open_all(&o, &settings[s])) continue;
        save_all(&o.model->model.directory);
        make_small(&o);
        mf_error why = { 0 };
        assert_true(feed(&o, 0, PROMPT, &why));
        for (size_t i = 0; i < saved_count; i++) assert_int_equal(truncate(saved[i].path, 100), 0);
        unsigned failures = 0;
        for (int i = 0; i < 3; i++) failures += !feed(&o, PROMPT, 1, &why);
        assert_int_equal(failures, 3);
        assert_non_null(strstr(why.text, "ends at byte"));
        restore_all();
        assert_int_equal(feed_rest(&o, PROMPT, 1), 0);
        close_all(&o);
    }
}

/* A removed file stays readable through an open descriptor. */
static void a_file_is_removed_under_a_sequence(void **state)
{
    (void)state;
    for (size_t s = 0; s < COUNT_OF(settings); s++) {
        struct opened o;
        mf_error why = { 0 };
        if (!open_all(&o, &settings[s])) continue;
        save_all(&o.model->model.directory);
        make_small(&o);
        assert_true(feed(&o, 0, PROMPT, &why));
        for (size_t i = 0; i < saved_count; i++) assert_int_equal(unlink(saved[i].path), 0);
        assert_int_equal(feed_rest(&o, PROMPT, 1), 0);
        close_all(&o);
        restore_all();
    }
}

/* A changed byte of a packed file: the checksum does not match. */
static void a_packed_file_is_changed_under_a_sequence(void **state)
{
    (void)state;
    for (size_t s = 0; s < COUNT_OF(settings); s++) {
        struct opened o;
        mf_error why = { 0 };
        if (settings[s].path != packed || settings[s].mode) continue;
        if (!open_all(&o, &settings[s])) continue;
        save_all(&o.model->model.directory);
        make_small(&o);
        assert_true(feed(&o, 0, PROMPT, &why));
        for (size_t i = 0; i < saved_count; i++) change_bytes(&saved[i]);
        for (int i = 0; i < 3; i++) assert_false(feed(&o, PROMPT, 1, &why));
        assert_non_null(strstr(why.text, "the checksum does not match"));
        restore_all();
        assert_int_equal(feed_rest(&o, PROMPT, 1), 0);
        close_all(&o);
    }
}

/* ------------------------------------------------------------------- set up */

static void compute_expected(void)
{
    struct opened o;
    mf_error why = { 0 };
    struct setting setting = { .path = plain };
    assert_true(open_all(&o, &setting));
    vocab_size = mf_model_vocab_size(o.model);
    expected = calloc((size_t)TOKENS * vocab_size, sizeof *expected);
    srand(5);
    for (size_t i = 0; i < TOKENS; i++) tokens[i] = (int32_t)((uint32_t)rand() % vocab_size);
    must(mf_sequence_feed(o.sequence, MF_PHASE_PROMPT, tokens, PROMPT, &why), &why);
    for (size_t i = PROMPT;; i++) {
        memcpy(expected + (i - 1) * vocab_size, mf_sequence_logits(o.sequence),
               vocab_size * sizeof *expected);
        if (i == TOKENS) break;
        must(mf_sequence_feed(o.sequence, MF_PHASE_GENERATED, tokens + i, 1, &why), &why);
    }
    close_all(&o);
}

static void copy_entry(void *context, const char *name)
{
    const char *from = context;
    char source[2 * PATH_CAPACITY], target[2 * PATH_CAPACITY];
    size_t length = strlen(name);
    bool wanted = length > 12 && strcmp(name + length - 12, ".safetensors") == 0;
    for (size_t i = 0; i < COUNT_OF(side_files); i++) wanted |= strcmp(name, side_files[i]) == 0;
    wanted |= strcmp(name, "model.safetensors.index.json") == 0;
    if (!wanted) return;
    snprintf(source, sizeof source, "%s/%s", from, name);
    snprintf(target, sizeof target, "%s/%s", plain, name);
    copy_file(source, target);
}

static int make_checkpoints(void **state)
{
    (void)state;
    char from[PATH_CAPACITY];
    mf_error why = { 0 };
    snprintf(from, sizeof from, "%s/tests/fixtures/golden/qwen3_moe_mlx4",
             getenv("MOEFLUX_SOURCE"));
    snprintf(root, sizeof root, "/tmp/moeflux-streaming-XXXXXX");
    assert_non_null(mkdtemp(root));
    snprintf(plain, sizeof plain, "%s/plain", root);
    snprintf(packed, sizeof packed, "%s/packed", root);
    assert_int_equal(mkdir(plain, 0700), 0);
    assert_int_equal(files_posix.list(NULL, from, copy_entry, from), 0);
    struct logger logger = { 0 };
    struct convert_result result;
    struct convert_options options = { .files = &files_posix,
                                       .disk = &disk_posix,
                                       .allocator = &allocator_heap,
                                       .logger = &logger,
                                       .source = plain,
                                       .target = packed };
    must(convert_run(&result, &options, &why), &why);
    compute_expected();
    return 0;
}

static void remove_entry(void *context, const char *name)
{
    char path[2 * PATH_CAPACITY];
    snprintf(path, sizeof path, "%s/%s", (const char *)context, name);
    unlink(path);
}

static int remove_checkpoints(void **state)
{
    (void)state;
    free(expected);
    files_posix.list(NULL, plain, remove_entry, plain);
    files_posix.list(NULL, packed, remove_entry, packed);
    return rmdir(plain) + rmdir(packed) + rmdir(root);
}

/* The tests above leave out a read engine that this machine lacks: say so in the count. */
static void every_read_engine_was_tried(void **state)
{
    (void)state;
    if (!engine_was_left_out) return;
    print_message("    SKIPPED: a read engine could not be opened here\n");
    skip();
}

int main(void)
{
    if (!getenv("MOEFLUX_SOURCE")) {
        fprintf(stderr, "SKIPPED: needs MOEFLUX_SOURCE\n");
        return EXIT_SKIPPED;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(failing_short_and_slow_reads),
        cmocka_unit_test(a_file_is_cut_under_a_sequence),
        cmocka_unit_test(a_file_is_removed_under_a_sequence),
        cmocka_unit_test(a_packed_file_is_changed_under_a_sequence),
        cmocka_unit_test(every_read_engine_was_tried),
    };
    return cmocka_run_group_tests(tests, make_checkpoints, remove_checkpoints);
}
