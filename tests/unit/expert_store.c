/* expert_store: whatever is asked of it in whatever order, leases show the bytes of
 * the file, invariants hold after every step, and a failed read harms no other expert.
 *
 * The model is made up: layers of three sizes, one of them without experts, arrays
 * scattered over two files. */
#include "support/test.h"

#include "experts/layout.h"
#include "experts/store.h"
#include "io/async_read.h"
#include "support/failing_allocator.h"
#include "support/failing_files.h"
#include "support/one_row.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { LAYERS = 5, EXPERTS = 16, PER_TOKEN = 4, FILES = 2, FILE_BYTES = 24 << 20 };

static char paths[FILES][32];
static uint8_t *contents[FILES];
static struct failing_files failing;
static struct failing_allocator heap;

static struct tensor_directory directory;
static struct file files[FILES];
static struct layer_weights layers[LAYERS];
static struct extent extents[LAYERS][EXPERT_PARTS * 3][EXPERTS];
static struct model_config config = { .layer_count = LAYERS,
                                      .experts = EXPERTS,
                                      .experts_per_token = PER_TOKEN };
static struct expert_store *store;
static enum expert_ahead ahead;
static enum expert_mode_choice mode;

/* ------------------------------------------------------------------- model */

static const struct extent *scatter(uint32_t layer, size_t array, uint64_t bytes, uint64_t *at)
{
    for (uint32_t e = 0; e < EXPERTS; e++) {
        uint32_t file = layer == 2;
        extents[layer][array][e] = (struct extent){ file, at[file] };
        at[file] += bytes + (uint64_t)(rand() % 3 == 0 ? rand() % 200 : 0);
        assert_true(at[file] <= FILE_BYTES);
    }
    return extents[layer][array];
}

static void make_layers(uint64_t scale)
{
    static const uint64_t sizes[LAYERS] = { 900, 0, 2300, 900, 1500 };
    uint64_t at[FILES] = { 33, 7 };
    for (uint32_t layer = 0; layer < LAYERS; layer++)
        for (size_t part = 0; part < EXPERT_PARTS && sizes[layer] > 0; part++) {
            struct expert_matrix *m = &layers[layer].experts[part];
            m->value_bytes = scale * sizes[layer] + part;
            m->values = scatter(layer, 3 * part, m->value_bytes, at);
            if (layer == 0) continue; /* a format without scales */
            m->scale_bytes = sizes[layer] / 16;
            m->scales = scatter(layer, 3 * part + 1, m->scale_bytes, at);
            if (layer == 4) continue; /* one without biases */
            m->bias_bytes = sizes[layer] / 16;
            m->biases = scatter(layer, 3 * part + 2, m->bias_bytes, at);
        }
}

static int make_model(void **state)
{
    (void)state;
    srand(7);
    for (int i = 0; i < FILES; i++) {
        snprintf(paths[i], sizeof paths[i], "/tmp/moeflux-store-XXXXXX");
        int descriptor = mkstemp(paths[i]);
        contents[i] = malloc(FILE_BYTES);
        for (size_t b = 0; b < FILE_BYTES; b++) contents[i][b] = (uint8_t)rand();
        if (write(descriptor, contents[i], FILE_BYTES) != FILE_BYTES) return -1;
        close(descriptor);
    }
    make_layers(1);
    return 0;
}

static int drop_model(void **state)
{
    (void)state;
    for (int i = 0; i < FILES; i++) {
        unlink(paths[i]);
        free(contents[i]);
    }
    return 0;
}

static bool open_files(enum read_engine_kind engine, const mf_files *functions, uint64_t budget)
{
    mf_error why = { 0 };
    failing_files_init(&failing, &files_posix);
    failing_allocator_init(&heap);
    for (int i = 0; i < FILES; i++)
        assert_int_equal(file_open(&files[i], functions, paths[i], &why), MF_OK);
    directory.files = files;
    directory.file_count = FILES;
    struct expert_store_options options = { .allocator = &heap.allocator,
                                            .directory = &directory,
                                            .layers = layers,
                                            .config = &config,
                                            .budget_bytes = budget,
                                            .hard_limit = true,
                                            .engine = engine,
                                            .ahead = ahead,
                                            .mode = mode };
    mf_status status = expert_store_open(&store, &options, &why);
    if (status != MF_OK) print_message("    not opened: %s\n", why.text);
    if (status == MF_ERR_UNSUPPORTED) {
        for (int i = 0; i < FILES; i++) file_close(&files[i]);
        return false;
    }
    assert_int_equal(status, MF_OK);
    assert_true(expert_store_check_invariants(store));
    assert_true(mode == MODE_MAPPED || expert_store_sizes(store).slot_bytes <= budget);
    return true;
}

/* READ_ENGINE_THREADS reads through functions that can fail.  False: there is no such
 * engine here. */
static bool open_store(enum read_engine_kind engine, uint64_t budget)
{
    return open_files(engine, engine == READ_ENGINE_THREADS ? &failing.files : &files_posix,
                      budget);
}

/* Skips the test, with a line that says why, where this machine has no such engine. */
static void open_files_or_skip(enum read_engine_kind engine, const mf_files *functions,
                               uint64_t budget)
{
    if (open_files(engine, functions, budget)) return;
    print_message("    SKIPPED: this machine has no such read engine\n");
    make_layers(1); /* as the next test expects them */
    skip();
}

static void open_or_skip(enum read_engine_kind engine, uint64_t budget)
{
    open_files_or_skip(engine, engine == READ_ENGINE_THREADS ? &failing.files : &files_posix,
                       budget);
}

static void close_store(void)
{
    expert_store_free(store);
    for (int i = 0; i < FILES; i++) file_close(&files[i]);
    assert_int_equal(heap.live_bytes, 0);
}

/* ------------------------------------------------------------------ checks */

static void check_array(const uint8_t *found, uint32_t layer, size_t array, uint32_t expert,
                        uint64_t bytes)
{
    if (bytes == 0) {
        assert_null(found);
        return;
    }
    const struct extent *extent = &extents[layer][array][expert];
    assert_memory_equal(found, contents[extent->file] + extent->offset, bytes);
}

static void check_lease(const struct expert_lease *lease, uint32_t layer)
{
    const struct weight *parts[EXPERT_PARTS] = { &lease->view.gate, &lease->view.up,
                                                 &lease->view.down };
    for (size_t part = 0; part < EXPERT_PARTS; part++) {
        const struct expert_matrix *m = &layers[layer].experts[part];
        check_array(parts[part]->values, layer, 3 * part, lease->expert, m->value_bytes);
        check_array(parts[part]->scales, layer, 3 * part + 1, lease->expert, m->scale_bytes);
        check_array(parts[part]->biases, layer, 3 * part + 2, lease->expert, m->bias_bytes);
    }
}

/* `count` different experts in ascending order. */
static void choose_experts(uint32_t *out, size_t count)
{
    size_t taken = 0;
    for (uint32_t e = 0; e < EXPERTS; e++) {
        size_t left = EXPERTS - e, needed = count - taken;
        if ((size_t)rand() % left < needed) out[taken++] = e;
    }
}

static uint32_t random_layer(void)
{
    static const uint32_t with_experts[] = { 0, 2, 3, 4 };
    return with_experts[rand() % 4];
}

/* One whole visit; every expert comes exactly once.  MF_OK, or the first failure. */
static mf_status visit_all(uint32_t layer, const uint32_t *experts, size_t count, size_t capacity,
                           mf_error *why)
{
    struct expert_visit visit;
    struct expert_lease leases[EXPERTS];
    bool seen[EXPERTS] = { 0 };
    size_t total = 0, given;
    mf_status status = MF_OK;
    visit_one_row(&visit, store, layer, experts, count);
    while ((given = expert_visit_next(&visit, leases, capacity, &status, why)) > 0) {
        assert_true(given <= capacity);
        assert_true(expert_store_check_invariants(store));
        for (size_t i = 0; i < given; i++) {
            assert_false(seen[leases[i].expert]);
            seen[leases[i].expert] = true;
            check_lease(&leases[i], layer);
            expert_lease_end(&leases[i]);
        }
        total += given;
    }
    assert_true(expert_store_check_invariants(store));
    if (status == MF_OK) assert_int_equal(total, count);
    for (size_t i = 0; status == MF_OK && i < count; i++) assert_true(seen[experts[i]]);
    return status;
}

enum { LARGEST_SLOT = 8192, LEAST = (PER_TOKEN + 2) * LARGEST_SLOT, ENOUGH = 64 << 20 };

/* For tests that run once with each engine. */
static enum read_engine_kind threads_engine = READ_ENGINE_THREADS, uring_engine = READ_ENGINE_URING;

static mf_status open_other(struct expert_store **out, uint64_t budget, mf_error *why)
{
    struct expert_store_options options = { .allocator = &heap.allocator,
                                            .directory = &directory,
                                            .layers = layers,
                                            .config = &config,
                                            .budget_bytes = budget };
    return expert_store_open(out, &options, why);
}

/* ------------------------------------------------------------------- tests */

static void modes_come_from_sizes(void **state)
{
    (void)state;
    assert_true(open_store(READ_ENGINE_THREADS, ENOUGH));
    struct expert_store_sizes sizes = expert_store_sizes(store);
    assert_string_equal(sizes.mode, "resident");
    assert_string_equal(sizes.reader, "threads");
    assert_int_equal(sizes.slots, sizes.total);
    assert_int_equal(sizes.total, 4 * EXPERTS);
    assert_int_equal(sizes.present, 0);
    assert_int_equal(atomic_load(&failing.calls), FILES); /* opened, not a byte read */
    uint64_t all = sizes.slot_bytes;
    close_store();
    assert_true(open_store(READ_ENGINE_THREADS, all - 1));
    sizes = expert_store_sizes(store);
    assert_string_equal(sizes.mode, "streamed");
    assert_true(sizes.slots < sizes.total);
    close_store();
}

static void a_budget_for_too_few_is_refused(void **state)
{
    (void)state;
    mf_error why = { 0 };
    assert_true(open_store(READ_ENGINE_THREADS, LEAST));
    assert_int_equal(expert_store_sizes(store).slots, PER_TOKEN + 2);
    struct expert_store *other;
    assert_int_equal(open_other(&other, LEAST - 1, &why), MF_ERR_MEMORY);
    assert_null(other);
    assert_non_null(strstr(why.text, "6 of them"));
    close_store();
}

/* Predictions, right and wrong, for any layer, at any time. */
static void expect_something(void)
{
    uint32_t experts[2 * PER_TOKEN];
    float weights[2 * PER_TOKEN];
    if (!expert_store_predictable_ranks(store, 1)) return;
    for (size_t i = 0; i < 2 * PER_TOKEN; i++) {
        experts[i] = (uint32_t)(rand() % EXPERTS);
        weights[i] = (float)rand();
    }
    expert_store_predict(store, random_layer(), 1, experts, weights, 2 * PER_TOKEN);
    assert_true(expert_store_check_invariants(store));
}

/* Any sequence of visits and predictions with any budget and capacity; visits that are
 * left early. */
static void leases_show_the_file_after_any_visits(void **state)
{
    static const uint64_t budgets[] = { LEAST, LEAST + LARGEST_SLOT, 2 * LEAST, 4 * LEAST, ENOUGH };
    for (size_t b = 0; b < COUNT_OF(budgets); b++) {
        ahead = b % 2 ? AHEAD_ALWAYS : AHEAD_MEASURED;
        open_or_skip(*(const enum read_engine_kind *)*state, budgets[b]);
        for (int round = 0; round < 400; round++) {
            uint32_t experts[EXPERTS], layer = random_layer();
            size_t count = (size_t)rand() % (EXPERTS + 1);
            choose_experts(experts, count);
            if (rand() % 2) expect_something();
            if (rand() % 4) {
                mf_error why = { 0 };
                assert_int_equal(
                    visit_all(layer, experts, count, 1 + (size_t)rand() % EXPERTS, &why), MF_OK);
            } else {
                struct expert_visit visit;
                struct expert_lease lease;
                mf_status status = MF_OK;
                visit_one_row(&visit, store, layer, experts, count);
                if (rand() % 2) expect_something();
                if (expert_visit_next(&visit, &lease, 1, &status, NULL)) {
                    check_lease(&lease, layer);
                    expert_lease_end(&lease);
                }
                assert_int_equal(status, MF_OK);
                assert_true(expert_store_check_invariants(store));
            }
            if (rand() % 100 == 0) {
                expert_store_drop_all(store);
                assert_true(expert_store_check_invariants(store));
                assert_int_equal(expert_store_sizes(store).present, 0);
            }
        }
        close_store();
    }
}

/* Experts large enough for direct reads, which round out to the disk's blocks. */
static void direct_reads_give_the_bytes_of_the_file(void **state)
{
    make_layers(100);
    open_files_or_skip(*(const enum read_engine_kind *)*state, &files_posix,
                       7 * 100 * LARGEST_SLOT);
    if (async_read_alignment(&files[0]) == 1)
        print_message("    SKIPPED in part: this file system has no direct reads\n");
    else
        assert_true(expert_store_sizes(store).direct);
    for (int round = 0; round < 100; round++) {
        uint32_t experts[EXPERTS];
        size_t count = 1 + (size_t)rand() % EXPERTS;
        choose_experts(experts, count);
        assert_int_equal(visit_all(random_layer(), experts, count, EXPERTS, NULL), MF_OK);
    }
    close_store();
    make_layers(1);
}

/* In the file at blocks of the device, in memory at pages. */
static void direct_reads_begin_at_pages(void **state)
{
    (void)state;
    static const size_t alignments[FILES] = { 512, 512 };
    struct expert_layout layout;
    for (uint32_t layer = 0; layer < LAYERS; layer++)
        for (uint32_t expert = 0; expert < EXPERTS && layer != 1; expert++) {
            expert_layout_make(&layout, &layers[layer], expert, alignments);
            assert_true(layout.piece_count > 1);
            for (size_t i = 0; i < layout.piece_count; i++) {
                const struct expert_piece *piece = &layout.pieces[i];
                assert_int_equal(piece->at % SLOT_ALIGNMENT, 0);
                assert_int_equal(piece->offset % 512, 0);
                assert_int_equal(piece->count % 512, 0);
                assert_true(piece->at + piece->count <= layout.bytes);
            }
        }
}

/* Not a limit, but which way: with what there is, and with what is asked for. */
static void the_mode_follows_the_sizes(void **state)
{
    (void)state;
    struct expert_mode_sizes sizes = { .slot_bytes = 90, .file_bytes = 100, .mappable = true };
    static const struct {
        uint64_t budget;
        enum expert_mode mode;
    } cases[] = { { 0, EXPERTS_STREAMED },   { 89, EXPERTS_STREAMED },
                  { 90, EXPERTS_RESIDENT },  { 99, EXPERTS_RESIDENT },
                  { 100, EXPERTS_MAPPED },   { 189, EXPERTS_MAPPED },
                  { 190, EXPERTS_RESIDENT }, { UINT64_MAX, EXPERTS_RESIDENT } };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        sizes.budget_bytes = cases[i].budget;
        assert_int_equal(expert_mode_choose(&sizes), cases[i].mode);
        struct expert_mode_sizes limited = sizes, other = sizes;
        limited.hard_limit = true;
        other.mappable = false;
        enum expert_mode unmapped = cases[i].budget < 90 ? EXPERTS_STREAMED : EXPERTS_RESIDENT;
        assert_int_equal(expert_mode_choose(&limited), unmapped);
        assert_int_equal(expert_mode_choose(&other), unmapped);
    }
}

static mf_status try_to_open(const mf_files *functions, uint64_t budget, mf_error *why)
{
    struct expert_store_options options = { .allocator = &heap.allocator,
                                            .directory = &directory,
                                            .layers = layers,
                                            .config = &config,
                                            .budget_bytes = budget,
                                            .mode = mode };
    failing_files_init(&failing, &files_posix);
    failing_allocator_init(&heap);
    for (int i = 0; i < FILES; i++)
        assert_int_equal(file_open(&files[i], functions, paths[i], why), MF_OK);
    mf_status status = expert_store_open(&store, &options, why);
    expert_store_free(store);
    for (int i = 0; i < FILES; i++) file_close(&files[i]);
    assert_int_equal(heap.live_bytes, 0);
    return status;
}

static void a_mode_that_does_not_fit_is_refused(void **state)
{
    (void)state;
    mf_error why = { 0 };
    mode = MODE_RESIDENT;
    assert_int_equal(try_to_open(&files_posix, 2 * LEAST, &why), MF_ERR_MEMORY);
    assert_non_null(strstr(why.text, "to hold them all"));
    assert_int_equal(try_to_open(&files_posix, ENOUGH, &why), MF_OK);
    mode = MODE_MAPPED;
    assert_int_equal(try_to_open(&files_posix, FILES * FILE_BYTES - 1, &why), MF_ERR_MEMORY);
    assert_non_null(strstr(why.text, "mapped"));
    assert_int_equal(try_to_open(&files_posix, FILES * FILE_BYTES, &why), MF_OK);
    assert_int_equal(try_to_open(&failing.files, FILES * FILE_BYTES, &why), MF_ERR_UNSUPPORTED);
    assert_non_null(strstr(why.text, "descriptor"));
    mode = MODE_BY_SIZE;
}

/* A mapped store hands out the file itself; a file that has become short is an error of
 * those experts that it no longer has, whether they were used before or not. */
static void mapped_experts_give_the_bytes_of_the_file(void **state)
{
    (void)state;
    uint32_t experts[EXPERTS];
    mf_error why = { 0 };
    mode = MODE_MAPPED;
    ahead = AHEAD_ALWAYS;
    assert_true(open_files(READ_ENGINE_BEST, &files_posix, FILES * FILE_BYTES));
    assert_string_equal(expert_store_sizes(store).mode, "mapped");
    for (int round = 0; round < 100; round++) {
        size_t count = 1 + (size_t)rand() % EXPERTS;
        choose_experts(experts, count);
        expect_something();
        assert_int_equal(visit_all(random_layer(), experts, count, EXPERTS, &why), MF_OK);
    }
    assert_int_equal(expert_store_set_budget(store, 1, &why), MF_OK);
    struct expert_counters counters = expert_store_counters(store);
    assert_int_equal(counters.evictions, 0);
    for (int known = 0; known < 2; known++) {
        off_t end = (off_t)extents[2][0][9].offset + 1;
        if (!known) expert_store_drop_all(store);
        choose_experts(experts, EXPERTS);
        assert_int_equal(truncate(paths[1], end), 0);
        assert_int_equal(visit_all(2, experts, EXPERTS, EXPERTS, &why), MF_ERR_IO);
        assert_non_null(strstr(why.text, paths[1]));
        assert_non_null(strstr(why.text, "layer 2, expert "));
        assert_int_equal(visit_all(0, experts, EXPERTS, EXPERTS, &why), MF_OK); /* another file */
        int descriptor = open(paths[1], O_WRONLY);
        assert_int_equal(pwrite(descriptor, contents[1], FILE_BYTES, 0), FILE_BYTES);
        close(descriptor);
        assert_int_equal(visit_all(2, experts, EXPERTS, EXPERTS, &why), MF_OK);
    }
    close_store();
    mode = MODE_BY_SIZE;
    ahead = AHEAD_MEASURED;
}

/* Leases outlive visits; the slots they hold keep their bytes whatever comes after. */
static void leases_outlive_visits(void **state)
{
    enum { HELD = 3 };
    open_or_skip(*(const enum read_engine_kind *)*state, LEAST);
    struct expert_lease held[HELD];
    uint32_t held_layer[HELD], layer, experts[EXPERTS];
    size_t count = 0;
    for (int round = 0; round < 300; round++) {
        if (count == HELD || (count > 0 && rand() % 2)) {
            size_t which = (size_t)rand() % count;
            check_lease(&held[which], held_layer[which]);
            expert_lease_end(&held[which]);
            held[which] = held[--count];
            held_layer[which] = held_layer[count];
        } else {
            struct expert_visit visit;
            mf_status status;
            layer = random_layer();
            choose_experts(experts, 1);
            visit_one_row(&visit, store, layer, experts, 1);
            assert_int_equal(expert_visit_next(&visit, &held[count], 1, &status, NULL), 1);
            held_layer[count++] = layer;
        }
        layer = random_layer();
        choose_experts(experts, PER_TOKEN);
        assert_int_equal(visit_all(layer, experts, PER_TOKEN, 2, NULL), MF_OK);
        for (size_t i = 0; i < count; i++) check_lease(&held[i], held_layer[i]);
    }
    while (count > 0) expert_lease_end(&held[--count]);
    close_store();
}

/* With every slot leased a visit cannot go on; it says so and does not hang. */
static void a_visit_ends_with_an_error_when_all_slots_are_leased(void **state)
{
    (void)state;
    uint32_t experts[EXPERTS];
    struct expert_visit visit;
    struct expert_lease leases[PER_TOKEN + 2];
    size_t given = 0;
    mf_status status;
    mf_error why = { 0 };
    assert_true(open_store(READ_ENGINE_THREADS, LEAST));
    for (uint32_t e = 0; e < EXPERTS; e++) experts[e] = e;
    visit_one_row(&visit, store, 2, experts, EXPERTS);
    for (;;) {
        size_t more = expert_visit_next(&visit, leases + given, 1, &status, &why);
        if (more == 0) break;
        given += more;
        assert_true(given <= PER_TOKEN + 2);
    }
    assert_int_equal(given, PER_TOKEN + 2);
    assert_int_equal(status, MF_ERR_ARGUMENT);
    assert_non_null(strstr(why.text, "leased"));
    while (given > 0) expert_lease_end(&leases[--given]);
    assert_int_equal(visit_all(2, experts, EXPERTS, 3, NULL), MF_OK);
    close_store();
}

static void read_everything(void)
{
    uint32_t experts[EXPERTS];
    choose_experts(experts, EXPERTS);
    for (uint32_t layer = 0; layer < LAYERS; layer++)
        if (layer != 1) assert_int_equal(visit_all(layer, experts, EXPERTS, EXPERTS, NULL), MF_OK);
}

/* What is predicted is read; asked for then, it is a hit or on its way. */
static void predicted_experts_are_read_ahead(void **state)
{
    (void)state;
    static const uint32_t experts[] = { 1, 4, 9 }, others[] = { 2, 3 };
    static const float weights[] = { 0.2f, 0.5f, 0.3f };
    ahead = AHEAD_ALWAYS;
    assert_true(open_store(READ_ENGINE_THREADS, 4 * LEAST));
    assert_int_equal(visit_all(0, others, 2, 2, NULL), MF_OK);
    assert_true(expert_store_predictable_ranks(store, 1));
    expert_store_predict(store, 2, 1, experts, weights, 3);
    assert_int_equal(visit_all(0, others, 2, 2, NULL), MF_OK); /* stops what has not begun */
    expert_store_predict(store, 2, 1, experts, weights, 3);
    assert_int_equal(visit_all(2, experts, 3, 3, NULL), MF_OK);
    struct expert_counters c = expert_store_counters(store);
    assert_true(c.ahead_reads >= 3);
    assert_int_equal(c.ahead_hits + c.ahead_late, 3);
    assert_int_equal(c.misses, 2);
    assert_true(c.predictions_right == c.predictions);
    close_store();

    /* Nothing is predicted if read-ahead is off, or if all experts are in memory. */
    ahead = AHEAD_NEVER;
    assert_true(open_store(READ_ENGINE_THREADS, LEAST));
    assert_false(expert_store_predictable_ranks(store, 1));
    close_store();
    ahead = AHEAD_ALWAYS;
    assert_true(open_store(READ_ENGINE_THREADS, ENOUGH));
    assert_true(expert_store_predictable_ranks(store, 1));
    read_everything();
    assert_false(expert_store_predictable_ranks(store, 1)); /* it is complete */
    close_store();
    ahead = AHEAD_MEASURED;
}

/* While slots are empty, their first reads are slow with read-ahead and without, so it is not tried
 * without. */
static void a_store_that_fills_reads_ahead(void **state)
{
    (void)state;
    static const uint32_t experts[] = { 1, 4, 9, 12 };
    assert_true(open_store(READ_ENGINE_THREADS, ENOUGH));
    for (int token = 0; token < 100; token++) {
        assert_true(expert_store_predictable_ranks(store, 1));
        for (uint32_t layer = 0; layer < LAYERS; layer++)
            if (layer != 1) assert_int_equal(visit_all(layer, experts, 4, 4, NULL), MF_OK);
    }
    close_store();
}

/* Whatever was predicted and does not come true is counted as waste, once it is gone. */
static void wrong_predictions_are_waste(void **state)
{
    (void)state;
    static const uint32_t wrong[] = { 0, 1 }, needed[] = { 2, 3, 4, 5 };
    static const float weights[] = { 0.5f, 0.5f };
    ahead = AHEAD_ALWAYS;
    assert_true(open_store(READ_ENGINE_THREADS, LEAST));
    /* On a busy machine the readers may need a while to get to what is only expected. */
    for (int round = 0; round < 20 || (!expert_store_counters(store).ahead_reads && round < 9999);
         round++) {
        assert_true(expert_store_predictable_ranks(store, 1));
        expert_store_predict(store, 2, 1, wrong, weights, 2);
        if (round >= 20) usleep(1000);
        assert_int_equal(visit_all(2, needed, 4, 4, NULL), MF_OK);
        assert_int_equal(visit_all(4, needed, 4, 4, NULL), MF_OK);
    }
    expert_store_drop_all(store);
    struct expert_counters c = expert_store_counters(store);
    assert_true(c.ahead_reads > 0);
    assert_int_equal(c.ahead_wasted, c.ahead_reads);
    assert_int_equal(c.predictions_right, 0);
    close_store();
    ahead = AHEAD_MEASURED;
}

/* Fewer slots, and more again: what stays is right, what must go is gone. */
static void change_budgets(void)
{
    uint32_t experts[EXPERTS];
    mf_error why = { 0 };
    uint64_t all = expert_store_sizes(store).slots;
    for (int round = 0; round < 200; round++) {
        uint64_t budget = (uint64_t)rand() % (40 * LARGEST_SLOT);
        uint64_t before = expert_store_sizes(store).slots;
        mf_status status = expert_store_set_budget(store, budget, &why);
        struct expert_store_sizes sizes = expert_store_sizes(store);
        assert_true(expert_store_check_invariants(store));
        if (status != MF_OK) {
            assert_int_equal(status, MF_ERR_MEMORY);
            assert_int_equal(sizes.slots, before);
        } else {
            assert_true(sizes.slot_bytes <= budget);
            assert_true(sizes.present <= sizes.slots && sizes.slots < all);
            assert_string_equal(sizes.mode, "streamed"); /* and not through the page cache */
        }
        choose_experts(experts, PER_TOKEN);
        assert_int_equal(visit_all(random_layer(), experts, PER_TOKEN, 3, &why), MF_OK);
    }
    assert_int_equal(expert_store_set_budget(store, ENOUGH, &why), MF_OK);
    assert_int_equal(expert_store_sizes(store).slots, all);
    assert_string_equal(expert_store_sizes(store).mode, "streamed"); /* it stays what it became */
    read_everything();
}

static void budgets_can_grow_and_shrink(void **state)
{
    open_or_skip(*(const enum read_engine_kind *)*state, ENOUGH);
    change_budgets();
    close_store();
}

static void another_visit_ends_the_first(void **state)
{
    (void)state;
    static const uint32_t experts[] = { 1, 2, 3 };
    struct expert_visit first, second;
    struct expert_lease lease;
    mf_status status;
    assert_true(open_store(READ_ENGINE_THREADS, ENOUGH));
    visit_one_row(&first, store, 0, experts, 3);
    assert_int_equal(expert_visit_next(&first, &lease, 1, &status, NULL), 1);
    expert_lease_end(&lease);
    visit_one_row(&second, store, 3, experts, 3);
    assert_int_equal(expert_visit_next(&second, &lease, 1, &status, NULL), 1);
    expert_lease_end(&lease);
    assert_int_equal(expert_visit_next(&first, &lease, 1, &status, NULL), 0);
    assert_int_equal(status, MF_ERR_ARGUMENT);
    close_store();
}

static void counters_tell_hits_from_misses(void **state)
{
    (void)state;
    static const uint32_t four[] = { 0, 5, 6, 15 }, others[] = { 5, 7 };
    assert_true(open_store(READ_ENGINE_THREADS, ENOUGH));
    failing.delay_us = 1000;
    assert_int_equal(visit_all(4, four, 4, 8, NULL), MF_OK);
    assert_int_equal(visit_all(4, others, 2, 8, NULL), MF_OK);
    struct expert_counters counters = expert_store_counters(store);
    assert_int_equal(counters.hits, 1);
    assert_int_equal(counters.misses, 5);
    assert_true(counters.bytes_read >= 5 * (3 * 1500 + 3 + 3 * 93));
    assert_true(counters.waits > 0 && counters.wait_seconds > 0);
    assert_int_equal(expert_store_uses(store, 4)[5], 2);
    assert_int_equal(expert_store_uses(store, 4)[7], 1);
    assert_int_equal(expert_store_uses(store, 3)[5], 0);
    assert_int_equal(expert_store_sizes(store).present, 5);
    expert_store_reset_counters(store);
    assert_int_equal(expert_store_counters(store).misses, 0);
    assert_int_equal(expert_store_uses(store, 4)[5], 0);
    close_store();
}

/* -------------------------------------------------------------------- faults */

/* One failing read is repeated, and the visit succeeds. */
static void every_read_fails_once(void **state)
{
    (void)state;
    static const uint32_t experts[] = { 2, 3, 9, 14 };
    assert_true(open_store(READ_ENGINE_THREADS, 2 * LEAST));
    for (uint64_t nth = 1;; nth++) {
        expert_store_drop_all(store);
        failing_files_arm(&failing, nth);
        assert_int_equal(visit_all(2, experts, 4, 4, NULL), MF_OK);
        if (!failing_files_disarm(&failing)) break;
    }
    close_store();
}

/* A place that cannot be read: the error names file, layer and expert; the other
 * experts stay usable, and this one is when the place has healed. */
static void a_bad_place_is_named(void **state)
{
    (void)state;
    static const uint32_t experts[] = { 2, 3, 9, 14 }, good[] = { 2, 3, 14 };
    assert_true(open_store(READ_ENGINE_THREADS, 2 * LEAST));
    for (size_t array = 0; array < 9; array++) {
        mf_error why = { 0 };
        const struct extent *bad = &extents[2][array][9];
        expert_store_drop_all(store);
        failing.bad_from = bad->offset;
        failing.bad_to = bad->offset + 1;
        assert_int_equal(visit_all(2, experts, 4, 4, &why), MF_ERR_IO);
        assert_non_null(strstr(why.text, paths[bad->file]));
        assert_non_null(strstr(why.text, "layer 2, expert 9"));
        assert_int_equal(visit_all(2, experts, 4, 1, &why), MF_ERR_IO);
        assert_int_equal(visit_all(2, good, 3, 4, &why), MF_OK);
        failing.bad_from = failing.bad_to = 0;
        assert_int_equal(visit_all(2, experts, 4, 4, &why), MF_OK);
    }
    close_store();
}

/* A gate: reads of one array wait, fail twice when they may go on, and then work.  The owner's
 * thread also reads, and would wait for itself: its reads only fail. */
static struct {
    mf_files files;
    uint64_t from, to;
    sem_t opened;
    atomic_uint failures_left;
    pthread_t owner;
    bool owner_came;
} gate;

static int64_t gated_read(void *user, void *handle, uint64_t offset, void *out, size_t count)
{
    bool gated = offset < gate.to && offset + count > gate.from && gate.failures_left > 0;
    if (!gated) return failing.files.read(user, handle, offset, out, count);
    if (pthread_equal(pthread_self(), gate.owner))
        gate.owner_came = true;
    else if (gate.failures_left == 2)
        sem_wait(&gate.opened);
    gate.failures_left--;
    return -EIO;
}

static void open_with_gate(const struct extent *at)
{
    failing_files_init(&failing, &files_posix);
    gate.files = failing.files;
    gate.files.read = gated_read;
    gate.from = at->offset;
    gate.to = at->offset + 1;
    gate.failures_left = 2;
    gate.owner = pthread_self();
    gate.owner_came = false;
    sem_init(&gate.opened, 0, 0);
    assert_true(open_files(READ_ENGINE_THREADS, &gate.files, 2 * LEAST));
}

/* A visit fails and leaves a read behind, which fails when the next visit has begun: it
 * is not that one's failure.  False: the owner carried that read out, so none was left. */
static bool leave_a_read_behind(void)
{
    static const uint32_t both[] = { 2, 9 }, left_over[] = { 9 };
    struct expert_visit visit;
    struct expert_lease lease;
    mf_status status;
    mf_error why = { 0 };
    const struct extent *bad = &extents[2][0][2];
    failing.bad_from = bad->offset;
    failing.bad_to = bad->offset + 1;
    assert_int_equal(visit_all(2, both, 2, 2, &why), MF_ERR_IO);
    if (gate.owner_came) return false;
    assert_non_null(strstr(why.text, "expert 2"));
    visit_one_row(&visit, store, 2, left_over, 1);
    sem_post(&gate.opened);
    assert_int_equal(expert_visit_next(&visit, &lease, 1, &status, &why), 1);
    assert_int_equal(gate.failures_left, 0);
    check_lease(&lease, 2);
    expert_lease_end(&lease);
    return true;
}

static void a_failed_read_that_was_left_behind_fails_no_later_visit(void **state)
{
    (void)state;
    bool left = false;
    for (int round = 0; round < 1000 && !left; round++) {
        open_with_gate(&extents[2][0][9]);
        left = leave_a_read_behind();
        sem_post(&gate.opened); /* for a read that still waits there */
        close_store();
        sem_destroy(&gate.opened);
    }
    assert_true(left);
}

/* Files that are short, slow or end early, and that fail every so often. */
static void short_slow_and_failing_reads_give_the_bytes_of_the_file(void **state)
{
    (void)state;
    assert_true(open_store(READ_ENGINE_THREADS, LEAST));
    for (int round = 0; round < 200; round++) {
        uint32_t experts[EXPERTS], layer = random_layer();
        size_t count = 1 + (size_t)rand() % EXPERTS;
        mf_error why = { 0 };
        failing.piece_bytes = rand() % 3 ? 0 : 100 + (size_t)rand() % 1000;
        failing.delay_us = rand() % 4 ? 0 : 100;
        failing.fail_every = rand() % 2 ? 0 : 2 + (uint64_t)rand() % 9;
        failing.end_at = rand() % 4 ? 0 : (uint64_t)rand() % (1 << 19);
        bool reliable = failing.fail_every == 0 && failing.end_at == 0;
        choose_experts(experts, count);
        mf_status status = visit_all(layer, experts, count, EXPERTS, &why);
        if (reliable) assert_int_equal(status, MF_OK);
        if (status != MF_OK) {
            assert_int_equal(status, MF_ERR_IO);
            assert_non_null(strstr(why.text, "expert "));
        }
    }
    close_store();
}

static void without_memory_there_is_no_store(void **state)
{
    (void)state;
    assert_true(open_store(READ_ENGINE_THREADS, 2 * LEAST));
    uint64_t before = heap.live_bytes;
    for (uint64_t nth = 1;; nth++) {
        struct expert_store *other;
        failing_allocator_arm(&heap, nth);
        mf_status status = open_other(&other, 2 * LEAST, NULL);
        bool fired = failing_allocator_disarm(&heap);
        if (!fired) assert_int_equal(status, MF_OK);
        if (status != MF_OK) assert_int_equal(status, MF_ERR_MEMORY);
        expert_store_free(other);
        assert_int_equal(heap.live_bytes, before);
        if (!fired) break;
    }
    close_store();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(modes_come_from_sizes),
        cmocka_unit_test(a_budget_for_too_few_is_refused),
        cmocka_unit_test_prestate(leases_show_the_file_after_any_visits, &threads_engine),
        cmocka_unit_test_prestate(leases_show_the_file_after_any_visits, &uring_engine),
        cmocka_unit_test_prestate(direct_reads_give_the_bytes_of_the_file, &threads_engine),
        cmocka_unit_test_prestate(direct_reads_give_the_bytes_of_the_file, &uring_engine),
        cmocka_unit_test(direct_reads_begin_at_pages),
        cmocka_unit_test(the_mode_follows_the_sizes),
        cmocka_unit_test(a_mode_that_does_not_fit_is_refused),
        cmocka_unit_test(mapped_experts_give_the_bytes_of_the_file),
        cmocka_unit_test_prestate(leases_outlive_visits, &threads_engine),
        cmocka_unit_test_prestate(leases_outlive_visits, &uring_engine),
        cmocka_unit_test(a_visit_ends_with_an_error_when_all_slots_are_leased),
        cmocka_unit_test(predicted_experts_are_read_ahead),
        cmocka_unit_test(a_store_that_fills_reads_ahead),
        cmocka_unit_test(wrong_predictions_are_waste),
        cmocka_unit_test_prestate(budgets_can_grow_and_shrink, &threads_engine),
        cmocka_unit_test_prestate(budgets_can_grow_and_shrink, &uring_engine),
        cmocka_unit_test(another_visit_ends_the_first),
        cmocka_unit_test(counters_tell_hits_from_misses),
        cmocka_unit_test(every_read_fails_once),
        cmocka_unit_test(a_bad_place_is_named),
        cmocka_unit_test(a_failed_read_that_was_left_behind_fails_no_later_visit),
        cmocka_unit_test(short_slow_and_failing_reads_give_the_bytes_of_the_file),
        cmocka_unit_test(without_memory_there_is_no_store),
    };
    return cmocka_run_group_tests(tests, make_model, drop_model);
}
