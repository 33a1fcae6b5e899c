/* prefix_oracle: random requests against the prefix cache, and a list of everything that was ever
 * kept, searched from end to end, that says what each of them may and must find. */
#include "support/test.h"

#include "support/prefix_bench.h"

#include <pthread.h>
#include <stdlib.h>

enum {
    REQUESTS = 200, /* of one world; WORLDS of them are 12,000 */
    WORLDS = 60,    /* of every kind of layers, exact or not, with five limits */
    WINDOW = 100,
    LIVE = 6,
    PROMPT_MAX = 600,
    ANSWER_MAX = 120,
    CAPACITY = 4 * (PROMPT_MAX + ANSWER_MAX),
    KEPT_MAX = REQUESTS * 12,
    ALPHABET = 3,
    THREADS = 4
};

/* ---------------------------------------------------------------------- oracle */

/* A call of prefix_tree_keep. */
struct kept {
    uint32_t *tokens; /* [position] with phases */
    uint32_t position;
    bool possible, promised; /* a checkpoint at `position` may exist, must exist */
};

struct oracle {
    struct kept kept[KEPT_MAX];
    size_t count;
    bool exact;
};

static void oracle_keep(struct oracle *oracle, const struct sequence *s, enum prefix_place place)
{
    assert_true(oracle->count < KEPT_MAX);
    struct kept *kept = &oracle->kept[oracle->count++];
    size_t bytes = s->position * sizeof *s->tokens;
    kept->tokens = malloc(bytes + 1);
    assert_non_null(kept->tokens);
    if (bytes > 0) memcpy(kept->tokens, s->tokens, bytes);
    kept->position = s->position;
    kept->possible = place != PREFIX_NO_PLACE;
    kept->promised = kept->possible && place < PREFIX_LAST_USER;
}

static void oracle_clear(struct oracle *oracle)
{
    while (oracle->count > 0) free(oracle->kept[--oracle->count].tokens);
}

static uint32_t common(const struct oracle *oracle, const struct kept *kept, const int32_t *tokens,
                       uint32_t count)
{
    uint32_t i = 0;
    while (i < count && i < kept->position) {
        uint32_t token = kept->tokens[i];
        if ((token & ~TOKEN_GENERATED) != (uint32_t)tokens[i]) break;
        if (oracle->exact && (token & TOKEN_GENERATED)) break;
        i++;
    }
    return i;
}

/* What a request must find if nothing was evicted. */
struct expected {
    uint32_t matched, promised;
    bool possible; /* there may be a checkpoint where it was resumed */
};

static struct expected oracle_ask(const struct oracle *oracle, const int32_t *tokens,
                                  uint32_t count, uint32_t resumed)
{
    struct expected e = { .possible = resumed == 0 };
    for (size_t i = 0; i < oracle->count; i++) {
        const struct kept *kept = &oracle->kept[i];
        uint32_t length = common(oracle, kept, tokens, count);
        e.matched = (uint32_t)max_size(e.matched, length);
        if (length < kept->position) continue;
        e.possible |= kept->possible && kept->position == resumed;
        if (kept->promised) e.promised = (uint32_t)max_size(e.promised, kept->position);
    }
    return e;
}

/* ----------------------------------------------------------------------- world */

struct world {
    struct prefix_bench *bench;
    struct oracle *oracle; /* NULL: threads share the tree */
    struct random_text random;
    bool checkpoints, unlimited; /* resumed at checkpoints only; nothing is evicted */
    uint64_t limit_bytes;
    struct sequence live[LIVE];
    uint64_t resumed, asked;
};

static uint32_t below(struct world *w, uint32_t limit)
{
    return random_below(&w->random, limit);
}

/* Frees sequences of the world until the tokens fit; false: they do not fit alone. */
static bool feed(struct world *w, struct sequence *s, const int32_t *tokens, uint32_t count,
                 bool generated)
{
    for (uint32_t next = 0;; next++) {
        mf_status status = prefix_bench_feed(s, tokens, count, generated);
        assert_true(prefix_bench_verify(s));
        if (status == MF_OK) return true;
        assert_int_equal(status, MF_ERR_POOL_FULL);
        while (next < LIVE && (&w->live[next] == s || w->live[next].position == 0)) next++;
        if (next >= LIVE) return false;
        sequence_clear(&w->live[next]);
    }
}

static void keep(struct world *w, const struct sequence *s, enum prefix_place place)
{
    assert_int_equal(prefix_tree_keep(w->bench->tree, s, place, NULL), MF_OK);
    if (w->oracle && s->position > 0) oracle_keep(w->oracle, s, place);
    if (w->limit_bytes) assert_true(prefix_tree_statistics(w->bench->tree).bytes <= w->limit_bytes);
}

/* A text that begins like one of another sequence, and goes on at random. */
static uint32_t make_prompt(struct world *w, int32_t *out)
{
    const struct sequence *from = &w->live[below(w, LIVE)];
    uint32_t most = (uint32_t)min_size(from->position, PROMPT_MAX - 1), count = 0;
    uint32_t shared = most > 0 ? below(w, most + 1) : 0;
    if (below(w, 4) == 0) shared = shared / KV_PAGE_TOKENS * KV_PAGE_TOKENS;
    if (below(w, 4) == 0) shared = most;
    for (; count < shared; count++) out[count] = (int32_t)(from->tokens[count] & ~TOKEN_GENERATED);
    uint32_t tail = 1 + below(w, PROMPT_MAX - shared);
    if (below(w, 2) == 0) tail = 1 + tail / 16;
    for (uint32_t end = count + tail; count < end; count++)
        out[count] = (int32_t)below(w, ALPHABET);
    return count;
}

static void resume(struct prefix_match *match, struct world *w, struct sequence *s,
                   const int32_t *tokens, uint32_t count)
{
    sequence_clear(s);
    assert_int_equal(prefix_tree_resume(match, w->bench->tree, s, tokens, count, NULL), MF_OK);
    assert_int_equal(s->position, match->resumed);
    assert_true(match->resumed <= match->matched && match->matched <= count);
    assert_true(prefix_bench_verify(s));
    for (uint32_t i = 0; i < s->position; i++)
        assert_int_equal(s->tokens[i] & ~TOKEN_GENERATED, tokens[i]);
    w->asked += count;
    w->resumed += match->resumed;
    if (!w->oracle) return;
    struct expected e = oracle_ask(w->oracle, tokens, count, match->resumed);
    assert_true(match->matched <= e.matched);
    assert_true(!w->checkpoints || e.possible);
    if (!w->unlimited) return;
    assert_int_equal(match->matched, e.matched);
    if (w->checkpoints)
        assert_true(match->resumed >= e.promised);
    else
        assert_int_equal(match->resumed, e.matched);
}

/* Reads up to `end`, where a checkpoint may be left. */
static bool read_to(struct world *w, struct sequence *s, const int32_t *tokens, uint32_t end,
                    enum prefix_place place)
{
    if (end <= s->position) return true;
    if (!feed(w, s, tokens + s->position, end - s->position, false)) return false;
    if (place != PREFIX_NO_PLACE) keep(w, s, place);
    return true;
}

static bool answer(struct world *w, struct sequence *s)
{
    int32_t tokens[ANSWER_MAX];
    uint32_t count = 1 + below(w, ANSWER_MAX);
    for (uint32_t i = 0; i < count; i++) tokens[i] = (int32_t)below(w, ALPHABET);
    if (!feed(w, s, tokens, count, true)) return false;
    static const enum prefix_place places[] = { PREFIX_NO_PLACE, PREFIX_ANSWER_END, PREFIX_NET };
    keep(w, s, places[below(w, COUNT_OF(places))]);
    return true;
}

/* A user's second thoughts: cut somewhere, and go on in another way. */
static void edit(struct world *w, struct sequence *s)
{
    uint32_t at = sequence_cut_before(s, below(w, s->position + 1));
    assert_int_equal(sequence_truncate(s, at, NULL), MF_OK);
    assert_true(prefix_bench_verify(s));
    if (answer(w, s) && below(w, 2) == 0) {
        int32_t more[80];
        for (uint32_t i = 0; i < COUNT_OF(more); i++) more[i] = (int32_t)below(w, ALPHABET);
        if (feed(w, s, more, 1 + below(w, COUNT_OF(more)), false)) keep(w, s, PREFIX_PROMPT_END);
    }
}

static void request(struct world *w)
{
    int32_t tokens[PROMPT_MAX];
    uint32_t count = make_prompt(w, tokens), middle = below(w, count);
    struct sequence *s = &w->live[below(w, LIVE)];
    struct prefix_match match;
    static const enum prefix_place places[] = { PREFIX_HEAD, PREFIX_BREAKPOINT, PREFIX_LAST_USER,
                                                PREFIX_NO_PLACE, PREFIX_NET };
    resume(&match, w, s, tokens, count - 1);
    if (middle < match.junction &&
        !read_to(w, s, tokens, middle, places[below(w, COUNT_OF(places))]))
        return;
    if (match.junction && !read_to(w, s, tokens, match.junction, PREFIX_JUNCTION)) return;
    if (!read_to(w, s, tokens, middle, places[below(w, COUNT_OF(places))])) return;
    if (!read_to(w, s, tokens, count - below(w, 4) % count, PREFIX_PROMPT_END)) return;
    if (!read_to(w, s, tokens, count, PREFIX_NO_PLACE)) return;
    if (below(w, 3) > 0 && !answer(w, s)) return;
    if (below(w, 4) == 0) edit(w, s);
}

static void world_run(struct world *w, uint32_t requests)
{
    for (int i = 0; i < LIVE; i++) sequence_init(&w->live[i], &w->bench->pool, CAPACITY);
    for (uint32_t i = 0; i < requests; i++) {
        if (w->oracle) w->bench->seconds += below(w, 7200);
        request(w);
        if (below(w, 16) == 0) assert_true(prefix_tree_check_invariants(w->bench->tree));
    }
    for (int i = 0; i < LIVE; i++) sequence_free(&w->live[i]);
}

static bool has_checkpoints(const struct prefix_bench_options *options)
{
    return options->recurrent || options->window > 0;
}

/* Attention alone, with recurrent layers, with windows. */
static struct prefix_bench_options choose_layers(uint32_t kind)
{
    return (struct prefix_bench_options){ .recurrent = kind == 1,
                                          .window = kind == 2 ? WINDOW : 0 };
}

/* Limits for some pages and states; `tightness` 0: none. */
static void choose_limits(struct prefix_bench_options *options, uint32_t tightness)
{
    struct prefix_bench sizes;
    prefix_bench_open(&sizes, options);
    uint64_t page = prefix_bench_page(&sizes), state = prefix_bench_state(&sizes);
    prefix_bench_close(&sizes);
    uint64_t some = 12 * page + (has_checkpoints(options) ? 6 * state : 0);
    if (tightness == 1 || tightness == 3) options->limit_bytes = 2 * some;
    if (tightness == 2 || tightness == 3) options->pool_bytes = 4 * some;
    if (tightness == 4) options->limit_bytes = some / 3;
}

static void requests_find_what_the_oracle_allows(void **state)
{
    (void)state;
    struct oracle *oracle = calloc(1, sizeof *oracle);
    assert_non_null(oracle);
    uint64_t asked = 0, resumed = 0, evicted = 0;
    for (uint32_t i = 0; i < WORLDS; i++) {
        struct prefix_bench bench;
        struct prefix_bench_options options = choose_layers(i % 3);
        struct world w = { .bench = &bench, .oracle = oracle, .random.state = 1000 + i };
        options.exact = i / 3 % 2;
        options.far = i / 3 % 4 == 3;
        choose_limits(&options, i / 6 % 5);
        prefix_bench_open(&bench, &options);
        oracle->exact = options.exact;
        w.checkpoints = has_checkpoints(&options);
        w.limit_bytes = options.limit_bytes;
        w.unlimited = !options.limit_bytes && !options.pool_bytes;
        world_run(&w, REQUESTS);
        asked += w.asked;
        resumed += w.resumed;
        evicted += prefix_tree_statistics(bench.tree).pages_evicted;
        prefix_bench_close(&bench);
        oracle_clear(oracle);
    }
    free(oracle);
    print_message("resumed %llu of %llu tokens, evicted %llu pages\n", (unsigned long long)resumed,
                  (unsigned long long)asked, (unsigned long long)evicted);
    assert_true(resumed > asked / 5 && evicted > 10000); /* else the test tests nothing */
}

/* --------------------------------------------------------------------- threads */

static void *run_thread(void *user)
{
    world_run(user, 300);
    return NULL;
}

static void threads_share_a_tree(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 6; i++) {
        struct prefix_bench bench;
        struct prefix_bench_options options = choose_layers(i % 3);
        options.exact = i / 3;
        struct world worlds[THREADS];
        pthread_t threads[THREADS];
        choose_limits(&options, 3);
        options.pool_bytes *= 2;
        prefix_bench_open(&bench, &options);
        for (uint32_t t = 0; t < THREADS; t++) {
            worlds[t] = (struct world){ .bench = &bench,
                                        .random.state = 77 * i + t,
                                        .limit_bytes = options.limit_bytes };
            assert_int_equal(pthread_create(&threads[t], NULL, run_thread, &worlds[t]), 0);
        }
        for (uint32_t t = 0; t < THREADS; t++) pthread_join(threads[t], NULL);
        prefix_bench_close(&bench);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(requests_find_what_the_oracle_allows),
        cmocka_unit_test(threads_share_a_tree),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
