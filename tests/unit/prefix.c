/* prefix: the prefix cache, one behaviour at a time. */
#include "support/test.h"

#include "support/prefix_bench.h"

enum { CAPACITY = 70000, TEXT = 40000 };

static int32_t text_a[TEXT], text_b[TEXT];

/* Two texts that differ from the first token on. */
static int make_texts(void **state)
{
    (void)state;
    for (int32_t i = 0; i < TEXT; i++) {
        text_a[i] = i % 61;
        text_b[i] = 1 + i % 59;
    }
    return 0;
}

/* A sequence that reads `count` tokens of a prompt, and is kept. */
static void read_and_keep(struct prefix_bench *b, struct sequence *s, const int32_t *tokens,
                          uint32_t count, enum prefix_place place)
{
    assert_int_equal(prefix_bench_feed(s, tokens + s->position, count - s->position, false), MF_OK);
    assert_int_equal(prefix_tree_keep(b->tree, s, place, NULL), MF_OK);
    assert_true(prefix_tree_check_invariants(b->tree));
}

static void generate(struct sequence *s, const int32_t *tokens, uint32_t count)
{
    assert_int_equal(prefix_bench_feed(s, tokens, count, true), MF_OK);
}

/* A request of its own: only its prompt, which leaves a checkpoint at the end. */
static void one_request(struct prefix_bench *b, const int32_t *tokens, uint32_t count,
                        enum prefix_place place)
{
    struct sequence s;
    sequence_init(&s, &b->pool, CAPACITY);
    read_and_keep(b, &s, tokens, count, place);
    sequence_free(&s);
}

static struct prefix_match ask(struct prefix_bench *b, const int32_t *tokens, uint32_t count)
{
    struct sequence s;
    struct prefix_match match;
    sequence_init(&s, &b->pool, CAPACITY);
    assert_int_equal(prefix_tree_resume(&match, b->tree, &s, tokens, count, NULL), MF_OK);
    assert_int_equal(s.position, match.resumed);
    for (uint32_t i = 0; i < s.position; i++)
        assert_int_equal(s.tokens[i] & ~TOKEN_GENERATED, tokens[i]);
    assert_true(prefix_bench_verify(&s));
    sequence_free(&s);
    assert_true(prefix_tree_check_invariants(b->tree));
    return match;
}

/* The first `count` tokens of text_a, then text_b. */
static const int32_t *branch(uint32_t count)
{
    static int32_t tokens[TEXT];
    memcpy(tokens, text_a, count * sizeof *tokens);
    memcpy(tokens + count, text_b + count, (TEXT - count) * sizeof *tokens);
    return tokens;
}

/* -------------------------------------------------------------------- lookup */

static void attention_resumes_at_any_token(void **state)
{
    (void)state;
    struct prefix_bench b;
    prefix_bench_open(&b, &(struct prefix_bench_options){ .exact = true });
    one_request(&b, text_a, 200, PREFIX_NO_PLACE);
    for (uint32_t count = 0; count <= 200; count++) {
        assert_int_equal(ask(&b, text_a, count).resumed, count);
        assert_int_equal(ask(&b, branch(count), 250).resumed, count);
    }
    struct prefix_match match = ask(&b, text_a, 250);
    assert_int_equal(match.matched, 200);
    assert_int_equal(match.resumed, 200);
    assert_int_equal(match.junction, 0);
    prefix_bench_close(&b);
}

static void recurrent_layers_resume_at_a_checkpoint(void **state)
{
    (void)state;
    struct prefix_bench b;
    struct sequence s;
    prefix_bench_open(&b, &(struct prefix_bench_options){ .recurrent = true });
    sequence_init(&s, &b.pool, CAPACITY);
    read_and_keep(&b, &s, text_a, 100, PREFIX_HEAD);
    read_and_keep(&b, &s, text_a, 128, PREFIX_BREAKPOINT);
    read_and_keep(&b, &s, text_a, 300, PREFIX_PROMPT_END);
    assert_int_equal(ask(&b, text_a, 99).resumed, 0);
    assert_int_equal(ask(&b, text_a, 100).resumed, 100);
    assert_int_equal(ask(&b, text_a, 127).resumed, 100);
    assert_int_equal(ask(&b, text_a, 128).resumed, 128);
    assert_int_equal(ask(&b, branch(299), 400).resumed, 128);
    assert_int_equal(ask(&b, branch(299), 400).matched, 299);
    assert_int_equal(ask(&b, branch(300), 400).resumed, 300);
    sequence_free(&s);
    prefix_bench_close(&b);
}

/* A text that two requests begin with: the second leaves a checkpoint, the third resumes there. */
static void third_request_resumes_at_a_junction(void **state)
{
    (void)state;
    struct prefix_bench b;
    struct sequence s;
    struct prefix_match match;
    prefix_bench_open(&b, &(struct prefix_bench_options){ .recurrent = true });
    one_request(&b, text_a, 1000, PREFIX_PROMPT_END);
    sequence_init(&s, &b.pool, CAPACITY);
    assert_int_equal(prefix_tree_resume(&match, b.tree, &s, branch(700), 900, NULL), MF_OK);
    assert_int_equal(match.matched, 700);
    assert_int_equal(match.resumed, 0);
    assert_int_equal(match.junction, 700);
    read_and_keep(&b, &s, branch(700), match.junction, PREFIX_JUNCTION);
    read_and_keep(&b, &s, branch(700), 900, PREFIX_PROMPT_END);
    match = ask(&b, branch(720), 1100);
    assert_int_equal(match.matched, 720);
    assert_int_equal(match.resumed, 700);
    assert_int_equal(match.junction, 0); /* 20 tokens are replayed without ado */
    assert_int_equal(ask(&b, branch(764), 1100).junction, 764);
    assert_int_equal(ask(&b, branch(763), 1100).junction, 0);
    sequence_free(&s);
    prefix_bench_close(&b);
}

static void generated_tokens_serve_prompts_unless_exact(void **state)
{
    (void)state;
    for (int exact = 0; exact < 2; exact++) {
        for (int recurrent = 0; recurrent < 2; recurrent++) {
            struct prefix_bench b;
            struct sequence s;
            prefix_bench_open(
                &b, &(struct prefix_bench_options){ .exact = exact, .recurrent = recurrent });
            sequence_init(&s, &b.pool, CAPACITY);
            read_and_keep(&b, &s, text_a, 500, PREFIX_PROMPT_END);
            generate(&s, text_a + 500, 300);
            assert_int_equal(prefix_tree_keep(b.tree, &s, PREFIX_ANSWER_END, NULL), MF_OK);
            struct prefix_match match = ask(&b, text_a, 900);
            assert_int_equal(match.resumed, exact ? 500 : 800);
            assert_int_equal(match.reason, exact ? PREFIX_GENERATED : PREFIX_ENDS);
            /* What follows a generated token was not made by a prompt alone either. */
            assert_int_equal(prefix_bench_feed(&s, text_a + 800, 300, false), MF_OK);
            assert_int_equal(prefix_tree_keep(b.tree, &s, PREFIX_PROMPT_END, NULL), MF_OK);
            assert_int_equal(ask(&b, text_a, 1200).resumed, exact ? 500 : 1100);
            sequence_free(&s);
            prefix_bench_close(&b);
        }
    }
}

/* A prompt with the same ids as an answer lies beside it. */
static void phases_are_branches(void **state)
{
    (void)state;
    struct prefix_bench b;
    struct sequence s;
    prefix_bench_open(&b, &(struct prefix_bench_options){ .recurrent = true });
    sequence_init(&s, &b.pool, CAPACITY);
    read_and_keep(&b, &s, text_a, 100, PREFIX_PROMPT_END);
    generate(&s, text_a + 100, 400);
    assert_int_equal(prefix_tree_keep(b.tree, &s, PREFIX_ANSWER_END, NULL), MF_OK);
    one_request(&b, text_a, 300, PREFIX_PROMPT_END);
    assert_int_equal(ask(&b, text_a, 400).resumed, 300);
    assert_int_equal(ask(&b, text_a, 500).resumed, 500);
    sequence_free(&s);
    prefix_bench_close(&b);
}

static void reasons_name_the_end_of_the_match(void **state)
{
    (void)state;
    struct prefix_bench b;
    prefix_bench_open(&b, &(struct prefix_bench_options){ 0 });
    assert_int_equal(ask(&b, text_a, 100).reason, PREFIX_EMPTY);
    one_request(&b, text_a, 200, PREFIX_NO_PLACE);
    assert_int_equal(ask(&b, text_a, 100).reason, PREFIX_WHOLE);
    assert_int_equal(ask(&b, text_a, 0).reason, PREFIX_WHOLE);
    assert_int_equal(ask(&b, text_a, 300).reason, PREFIX_ENDS);
    assert_int_equal(ask(&b, branch(150), 300).reason, PREFIX_DIFFERS);
    assert_int_equal(ask(&b, branch(0), 300).reason, PREFIX_DIFFERS);
    assert_int_equal(ask(&b, branch(128), 300).reason, PREFIX_DIFFERS);
    prefix_bench_close(&b);
}

static void only_an_empty_sequence_resumes(void **state)
{
    (void)state;
    struct prefix_bench b;
    struct sequence s;
    struct prefix_match match;
    mf_error why;
    prefix_bench_open(&b, &(struct prefix_bench_options){ 0 });
    sequence_init(&s, &b.pool, 150);
    read_and_keep(&b, &s, text_a, 130, PREFIX_NO_PLACE);
    assert_int_equal(prefix_tree_resume(&match, b.tree, &s, text_a, 100, &why), MF_ERR_ARGUMENT);
    sequence_clear(&s);
    s.capacity = 120; /* and resumes no more than fits */
    assert_int_equal(prefix_tree_resume(&match, b.tree, &s, text_a, 130, &why), MF_OK);
    assert_int_equal(s.position, 120);
    sequence_free(&s);
    prefix_bench_close(&b);
}

/* The page that is half full when it is kept: its sequence goes on in a copy. */
static void sequences_go_on_after_they_are_kept(void **state)
{
    (void)state;
    struct prefix_bench b;
    struct sequence first, second;
    struct prefix_match match;
    prefix_bench_open(&b, &(struct prefix_bench_options){ .recurrent = true });
    sequence_init(&first, &b.pool, CAPACITY);
    sequence_init(&second, &b.pool, CAPACITY);
    read_and_keep(&b, &first, text_a, 100, PREFIX_HEAD);
    assert_int_equal(prefix_tree_resume(&match, b.tree, &second, text_a, 120, NULL), MF_OK);
    assert_int_equal(second.position, 100);
    read_and_keep(&b, &first, text_a, 250, PREFIX_PROMPT_END);
    read_and_keep(&b, &second, branch(100), 220, PREFIX_PROMPT_END);
    assert_true(prefix_bench_verify(&first) && prefix_bench_verify(&second));
    assert_int_equal(ask(&b, text_a, 260).resumed, 250);
    assert_int_equal(ask(&b, branch(100), 260).resumed, 220);
    assert_int_equal(ask(&b, branch(105), 260).resumed, 100);
    sequence_free(&first);
    sequence_free(&second);
    prefix_bench_close(&b);
}

/* ----------------------------------------------------------------- placement */

/* Where a checkpoint was left at `position` of text_a. */
static bool has_checkpoint(struct prefix_bench *b, uint32_t position)
{
    return ask(b, text_a, position).resumed == position;
}

static void short_requests_leave_few_checkpoints(void **state)
{
    (void)state;
    struct prefix_bench b;
    struct sequence s;
    prefix_bench_open(&b, &(struct prefix_bench_options){ .recurrent = true });
    sequence_init(&s, &b.pool, CAPACITY);
    read_and_keep(&b, &s, text_a, 100, PREFIX_HEAD);
    read_and_keep(&b, &s, text_a, 180, PREFIX_LAST_USER);
    read_and_keep(&b, &s, text_a, 200, PREFIX_PROMPT_END);
    generate(&s, text_a + 200, 100);
    assert_int_equal(prefix_tree_keep(b.tree, &s, PREFIX_ANSWER_END, NULL), MF_OK);
    assert_int_equal(prefix_tree_statistics(b.tree).checkpoints, 2);
    generate(&s, text_a + 300, 200);
    assert_int_equal(prefix_tree_keep(b.tree, &s, PREFIX_ANSWER_END, NULL), MF_OK);
    assert_int_equal(prefix_tree_statistics(b.tree).checkpoints, 3); /* not so short */
    sequence_free(&s);
    assert_false(has_checkpoint(&b, 180));
    assert_false(has_checkpoint(&b, 300));
    assert_true(has_checkpoint(&b, 500));
    prefix_bench_close(&b);
}

/* The same beginning again, further than the head that all share: now short ones pay, too. */
static void a_prefix_that_is_seen_twice_leaves_checkpoints(void **state)
{
    (void)state;
    for (int again = 0; again < 2; again++) {
        struct prefix_bench b;
        struct sequence s;
        struct prefix_match match;
        prefix_bench_open(&b, &(struct prefix_bench_options){ .recurrent = true });
        sequence_init(&s, &b.pool, CAPACITY);
        read_and_keep(&b, &s, text_a, 100, PREFIX_HEAD);
        read_and_keep(&b, &s, text_a, 150, PREFIX_PROMPT_END);
        sequence_clear(&s);
        assert_int_equal(
            prefix_tree_resume(&match, b.tree, &s, branch(100), again ? 140 : 100, NULL), MF_OK);
        if (again) {
            sequence_clear(&s);
            prefix_tree_resume(&match, b.tree, &s, text_a, 150, NULL);
        }
        read_and_keep(&b, &s, text_a, 170, PREFIX_NO_PLACE);
        generate(&s, text_a + 170, 64);
        assert_int_equal(prefix_tree_keep(b.tree, &s, PREFIX_ANSWER_END, NULL), MF_OK);
        assert_int_equal(prefix_tree_statistics(b.tree).checkpoints, again ? 3 : 2);
        sequence_free(&s);
        prefix_bench_close(&b);
    }
}

static void one_checkpoint_for_each_position(void **state)
{
    (void)state;
    struct prefix_bench b;
    struct sequence s;
    prefix_bench_open(&b, &(struct prefix_bench_options){ .recurrent = true });
    sequence_init(&s, &b.pool, CAPACITY);
    read_and_keep(&b, &s, text_a, 300, PREFIX_NET);
    assert_int_equal(prefix_tree_keep(b.tree, &s, PREFIX_HEAD, NULL), MF_OK);
    assert_int_equal(prefix_tree_keep(b.tree, &s, PREFIX_NET, NULL), MF_OK);
    assert_int_equal(prefix_tree_statistics(b.tree).checkpoints, 1);
    sequence_clear(&s);
    assert_int_equal(prefix_tree_keep(b.tree, &s, PREFIX_HEAD, NULL), MF_OK); /* nothing */
    assert_int_equal(prefix_tree_statistics(b.tree).checkpoints, 1);
    sequence_free(&s);
    prefix_bench_close(&b);
}

/* From any position back to a checkpoint it is at most as far as to the tip, and few are kept. */
static void safety_net_thins_backwards(void **state)
{
    (void)state;
    enum { STEP = 512, STEPS = 64 };
    struct prefix_bench b;
    struct sequence s;
    prefix_bench_open(&b, &(struct prefix_bench_options){ .recurrent = true });
    sequence_init(&s, &b.pool, CAPACITY);
    for (uint32_t i = 1; i <= STEPS; i++) {
        uint32_t tip = i * STEP;
        read_and_keep(&b, &s, text_a, tip, i == 3 ? PREFIX_HEAD : PREFIX_NET);
        for (uint32_t at = STEP; at <= tip; at += STEP) {
            uint32_t resumed = ask(&b, text_a, at).resumed;
            assert_true(at - resumed <= tip - at + STEP);
        }
    }
    assert_true(prefix_tree_statistics(b.tree).checkpoints <= 14);
    assert_true(has_checkpoint(&b, 3 * STEP)); /* not of the net */
    assert_true(has_checkpoint(&b, (STEPS - 1) * STEP));
    sequence_free(&s);
    prefix_bench_close(&b);
}

/* ------------------------------------------------------------------ eviction */

/* The limit holds for blocks and tables, whatever is kept. */
static void limit_is_never_exceeded(void **state)
{
    (void)state;
    for (int recurrent = 0; recurrent < 2; recurrent++) {
        for (uint32_t pages = 0; pages < 12; pages++) {
            struct prefix_bench b;
            prefix_bench_open(
                &b, &(struct prefix_bench_options){ .recurrent = recurrent, .limit_bytes = 1 });
            uint64_t limit = pages * (prefix_bench_page(&b) + 1000) + 2 * prefix_bench_state(&b);
            prefix_bench_close(&b);
            prefix_bench_open(
                &b, &(struct prefix_bench_options){ .recurrent = recurrent, .limit_bytes = limit });
            for (uint32_t i = 0; i < 20; i++) {
                b.seconds++;
                one_request(&b, branch(40 * i), 300 + 20 * i, PREFIX_PROMPT_END);
                assert_true(prefix_tree_statistics(b.tree).bytes <= limit);
                ask(&b, branch(40 * i), 200 + 20 * i);
            }
            prefix_bench_close(&b);
        }
    }
}

/* A limit for one text of 640 tokens and a half. */
static void open_small(struct prefix_bench *b, bool recurrent)
{
    struct prefix_bench_options options = { .recurrent = recurrent, .limit_bytes = 1 };
    prefix_bench_open(b, &options);
    options.limit_bytes = 15 * (prefix_bench_page(b) + 700);
    if (recurrent) options.limit_bytes += 2 * prefix_bench_state(b);
    prefix_bench_close(b);
    prefix_bench_open(b, &options);
}

static void oldest_goes_first(void **state)
{
    (void)state;
    for (int recurrent = 0; recurrent < 2; recurrent++) {
        struct prefix_bench b;
        open_small(&b, recurrent);
        one_request(&b, text_a, 640, PREFIX_PROMPT_END);
        b.seconds += 3600;
        one_request(&b, text_b, 640, PREFIX_PROMPT_END);
        assert_int_equal(ask(&b, text_b, 700).resumed, 640);
        assert_true(ask(&b, text_a, 700).resumed < 640);
        assert_true(prefix_tree_statistics(b.tree).pages_evicted > 0);
        prefix_bench_close(&b);
    }
}

/* Two of three fit; the one that was resumed more often stays, though it is not the newest. */
static void what_is_resumed_often_stays(void **state)
{
    (void)state;
    struct prefix_bench_options options = { .recurrent = true, .limit_bytes = 1 };
    struct prefix_bench b;
    prefix_bench_open(&b, &options);
    options.limit_bytes = 9 * (prefix_bench_page(&b) + 700) + 2 * (prefix_bench_state(&b) + 200);
    prefix_bench_close(&b);
    prefix_bench_open(&b, &options);
    one_request(&b, text_a, 256, PREFIX_PROMPT_END);
    ask(&b, text_a, 256);
    ask(&b, text_a, 256);
    b.seconds += 600;
    one_request(&b, text_b, 256, PREFIX_PROMPT_END);
    b.seconds += 600;
    one_request(&b, text_b + 7, 256, PREFIX_PROMPT_END);
    assert_int_equal(ask(&b, text_a, 256).resumed, 256);
    assert_int_equal(ask(&b, text_b, 256).resumed, 0);
    assert_int_equal(ask(&b, text_b + 7, 256).resumed, 256);
    /* Hits fade: after days without one it is like any other. */
    b.seconds += 3 * 24 * 3600.0;
    one_request(&b, text_b, 256, PREFIX_PROMPT_END);
    one_request(&b, text_b + 7, 256, PREFIX_PROMPT_END);
    assert_int_equal(ask(&b, text_a, 256).resumed, 0);
    prefix_bench_close(&b);
}

/* A hit refreshes the checkpoint that has served, and none of its ancestors. */
static void ancestors_of_a_hit_age(void **state)
{
    (void)state;
    struct prefix_bench_options options = { .recurrent = true, .limit_bytes = 1 };
    struct prefix_bench b;
    struct sequence s;
    prefix_bench_open(&b, &options);
    options.limit_bytes = 16 * (prefix_bench_page(&b) + 420) + 3 * (prefix_bench_state(&b) + 100);
    prefix_bench_close(&b);
    prefix_bench_open(&b, &options);
    sequence_init(&s, &b.pool, CAPACITY);
    read_and_keep(&b, &s, text_a, 256, PREFIX_PROMPT_END);
    read_and_keep(&b, &s, text_a, 512, PREFIX_PROMPT_END);
    sequence_free(&s);
    b.seconds += 24 * 3600;
    ask(&b, text_a, 512);
    one_request(&b, text_b, 200, PREFIX_PROMPT_END);
    one_request(&b, text_b + 7, 200, PREFIX_PROMPT_END);
    assert_int_equal(ask(&b, text_a, 512).resumed, 512);
    assert_int_equal(ask(&b, text_a, 256).resumed, 0);
    assert_int_equal(ask(&b, text_b, 200).resumed, 200);
    prefix_bench_close(&b);
}

/* With recurrent layers, pages behind the last checkpoint are of no use and are not kept. */
static void pages_without_a_checkpoint_are_not_kept(void **state)
{
    (void)state;
    struct prefix_bench b;
    struct sequence s;
    prefix_bench_open(&b, &(struct prefix_bench_options){ .recurrent = true });
    sequence_init(&s, &b.pool, CAPACITY);
    read_and_keep(&b, &s, text_a, 640, PREFIX_NO_PLACE);
    assert_int_equal(prefix_tree_statistics(b.tree).pages, 0);
    assert_int_equal(prefix_tree_statistics(b.tree).nodes, 10);
    sequence_clear(&s);
    read_and_keep(&b, &s, text_a, 100, PREFIX_HEAD);
    assert_int_equal(prefix_tree_statistics(b.tree).pages, 2);
    assert_int_equal(ask(&b, text_a, 700).matched, 640);
    sequence_free(&s);
    prefix_bench_close(&b);
}

/* Tokens without pages are cheap, and yet within the limit. */
static void tokens_alone_are_forgotten_last_used_first(void **state)
{
    (void)state;
    struct prefix_bench b;
    prefix_bench_open(&b,
                      &(struct prefix_bench_options){ .recurrent = true, .limit_bytes = 160000 });
    for (int32_t i = 0; i < 500; i++) {
        int32_t tokens[64] = { i % 25, i / 25 };
        b.seconds++;
        if (i % 4 == 0) assert_int_equal(ask(&b, (int32_t[]){ 0, 0 }, 2).matched, i > 0 ? 2 : 0);
        one_request(&b, tokens, 64, PREFIX_NO_PLACE);
    }
    assert_int_equal(ask(&b, (int32_t[]){ 1, 0 }, 2).matched, 1);
    assert_true(prefix_tree_statistics(b.tree).nodes < 40);
    prefix_bench_close(&b);
}

/* ---------------------------------------------------------------------- pool */

static void pool_asks_before_it_is_full(void **state)
{
    (void)state;
    for (int recurrent = 0; recurrent < 2; recurrent++) {
        struct prefix_bench_options options = { .recurrent = recurrent };
        struct prefix_bench b;
        struct sequence s;
        prefix_bench_open(&b, &options);
        options.pool_bytes = 20 * prefix_bench_page(&b);
        if (recurrent) options.pool_bytes += 4 * prefix_bench_state(&b);
        prefix_bench_close(&b);
        prefix_bench_open(&b, &options);
        one_request(&b, text_b, 10 * 64, PREFIX_PROMPT_END);
        sequence_init(&s, &b.pool, CAPACITY);
        read_and_keep(&b, &s, text_a, 10 * 64, PREFIX_PROMPT_END);
        assert_int_equal(ask(&b, text_b, 640).resumed, 640);
        /* Its own pages are shared with the tree: only the other text gives any. */
        assert_int_equal(prefix_bench_feed(&s, text_a + 640, 9 * 64, false), MF_OK);
        assert_true(ask(&b, text_b, 640).resumed < 640);
        assert_int_equal(ask(&b, text_a, 640).resumed, 640);
        assert_int_equal(prefix_bench_feed(&s, text_a + 1216, 64, false), MF_OK);
        assert_int_equal(prefix_bench_feed(&s, text_a + 1280, 640, false), MF_ERR_POOL_FULL);
        assert_true(prefix_bench_verify(&s));
        sequence_free(&s);
        prefix_bench_close(&b);
    }
}

static void a_tree_that_is_too_small_keeps_nothing(void **state)
{
    (void)state;
    struct prefix_bench b;
    prefix_bench_open(&b, &(struct prefix_bench_options){ .recurrent = true, .limit_bytes = 2000 });
    one_request(&b, text_a, 640, PREFIX_PROMPT_END);
    assert_int_equal(prefix_tree_statistics(b.tree).checkpoints, 0);
    assert_int_equal(prefix_tree_statistics(b.tree).refused, 1);
    assert_int_equal(ask(&b, text_a, 640).resumed, 0);
    prefix_bench_close(&b);
}

/* Whatever allocation fails, the tree holds what it held and works again. */
static void keep_and_resume_survive_every_failing_allocation(void **state)
{
    (void)state;
    for (uint64_t nth = 1;; nth++) {
        struct prefix_bench b;
        struct sequence s, other;
        struct prefix_match match;
        prefix_bench_open(&b, &(struct prefix_bench_options){ .recurrent = true });
        sequence_init(&s, &b.pool, CAPACITY);
        sequence_init(&other, &b.pool, CAPACITY);
        read_and_keep(&b, &s, text_a, 100, PREFIX_HEAD);
        assert_int_equal(prefix_bench_feed(&s, text_a + 100, 200, false), MF_OK);
        failing_allocator_arm(&b.heap, nth);
        mf_status status = prefix_tree_keep(b.tree, &s, PREFIX_PROMPT_END, NULL);
        if (status == MF_OK) status = prefix_tree_resume(&match, b.tree, &other, text_a, 300, NULL);
        bool fired = failing_allocator_disarm(&b.heap);
        assert_int_equal(status, fired ? MF_ERR_MEMORY : MF_OK);
        assert_true(prefix_tree_check_invariants(b.tree));
        assert_int_equal(other.position, fired ? 0 : 300);
        assert_true(ask(&b, text_a, 300).resumed >= 100);
        sequence_free(&s);
        sequence_free(&other);
        prefix_bench_close(&b);
        if (!fired) break;
    }
}

static void a_tree_may_be_cleared(void **state)
{
    (void)state;
    struct prefix_bench b;
    prefix_bench_open(&b, &(struct prefix_bench_options){ .recurrent = true });
    one_request(&b, text_a, 640, PREFIX_PROMPT_END);
    prefix_tree_clear(b.tree);
    assert_int_equal(prefix_tree_statistics(b.tree).bytes, 0);
    assert_int_equal(ask(&b, text_a, 640).reason, PREFIX_EMPTY);
    prefix_tree_free(NULL);
    prefix_bench_close(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(attention_resumes_at_any_token),
        cmocka_unit_test(recurrent_layers_resume_at_a_checkpoint),
        cmocka_unit_test(third_request_resumes_at_a_junction),
        cmocka_unit_test(generated_tokens_serve_prompts_unless_exact),
        cmocka_unit_test(phases_are_branches),
        cmocka_unit_test(reasons_name_the_end_of_the_match),
        cmocka_unit_test(only_an_empty_sequence_resumes),
        cmocka_unit_test(sequences_go_on_after_they_are_kept),
        cmocka_unit_test(short_requests_leave_few_checkpoints),
        cmocka_unit_test(a_prefix_that_is_seen_twice_leaves_checkpoints),
        cmocka_unit_test(one_checkpoint_for_each_position),
        cmocka_unit_test(safety_net_thins_backwards),
        cmocka_unit_test(limit_is_never_exceeded),
        cmocka_unit_test(oldest_goes_first),
        cmocka_unit_test(what_is_resumed_often_stays),
        cmocka_unit_test(ancestors_of_a_hit_age),
        cmocka_unit_test(pages_without_a_checkpoint_are_not_kept),
        cmocka_unit_test(tokens_alone_are_forgotten_last_used_first),
        cmocka_unit_test(pool_asks_before_it_is_full),
        cmocka_unit_test(a_tree_that_is_too_small_keeps_nothing),
        cmocka_unit_test(keep_and_resume_survive_every_failing_allocation),
        cmocka_unit_test(a_tree_may_be_cleared),
    };
    return cmocka_run_group_tests(tests, make_texts, NULL);
}
