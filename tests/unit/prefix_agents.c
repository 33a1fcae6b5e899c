/* prefix_agents: transcripts of agents against the prefix cache: a long head of system message and
 * tools, loops of tool calls, reasoning that templates drop after the next user message, edited and
 * repeated questions, several sessions at a time.  The requests go through the code that places
 * checkpoints for the scheduler (engine/requests_prefix.c); what is computed are tags. */
#include "support/test.h"

#include "engine/requests_loop.h"
#include "support/prefix_bench.h"

#include <stdlib.h>

enum {
    HEAD_TOKENS = 16000,
    LENGTH_MAX = 40000,
    MESSAGES_MAX = 200,
    SESSIONS = 4,
    TURNS = 6,
    SEEN_MAX = 400,
    /* ids of markup; those of text are above */
    ID_USER = 1,
    ID_ASSISTANT,
    ID_TOOL,
    ID_END,
    ID_THINK,
    ID_THOUGHT,
    ID_TEXT = 16
};

enum role { USER, ASSISTANT, TOOL };

struct message {
    enum role role;
    uint32_t seed;            /* of its text */
    uint32_t thought, length; /* tokens of reasoning, and of text */
};

struct session {
    uint32_t head; /* seed of system message and tools: the same for some sessions */
    struct message messages[MESSAGES_MAX];
    size_t count;
};

struct prompt {
    int32_t tokens[LENGTH_MAX];
    uint32_t count;
    struct request_place places[3];
};

/* What a request held when it ended. */
struct seen {
    uint32_t *tokens;
    uint32_t count;
};

struct world {
    struct prefix_bench bench;
    bool exact;
    uint64_t random;
    struct seen seen[SEEN_MAX];
    size_t seen_count;
    uint64_t shared, resumed;
};

static uint32_t random_from(struct world *w, uint32_t low, uint32_t high)
{
    w->random = w->random * 6364136223846793005u + 1442695040888963407u;
    return low + (uint32_t)((w->random >> 33) % (high - low + 1));
}

/* ------------------------------------------------------------------- rendering */

static void add(struct prompt *p, int32_t token)
{
    assert_true(p->count < LENGTH_MAX);
    p->tokens[p->count++] = token;
}

static void add_text(struct prompt *p, uint32_t seed, uint32_t count)
{
    uint64_t state = seed * UINT64_C(0x9e3779b97f4a7c15);
    for (uint32_t i = 0; i < count; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        add(p, ID_TEXT + (int32_t)((state >> 40) % 64));
    }
}

static void add_answer(struct prompt *p, const struct message *m, bool thoughts)
{
    if (thoughts) {
        add_text(p, m->seed + 1, m->thought);
        add(p, ID_THOUGHT);
    }
    add_text(p, m->seed, m->length);
    add(p, ID_END);
}

/* As templates of models that reason do: thoughts before the last user message are dropped. */
static void render(struct prompt *p, const struct session *s)
{
    static const int32_t ids[] = { ID_USER, ID_ASSISTANT, ID_TOOL };
    size_t last = 0;
    p->count = 0;
    for (size_t i = 0; i < s->count; i++)
        if (s->messages[i].role == USER) last = i;
    add_text(p, s->head, HEAD_TOKENS);
    add(p, ID_END);
    for (size_t i = 0; i < s->count; i++) {
        const struct message *m = &s->messages[i];
        add(p, ids[m->role]);
        if (i == 0) p->places[0] = (struct request_place){ p->count, PREFIX_HEAD };
        if (i == last) p->places[1] = (struct request_place){ p->count, PREFIX_LAST_USER };
        if (m->role == ASSISTANT && i > last) add(p, ID_THINK);
        add_answer(p, m, m->role == ASSISTANT && i > last);
    }
    p->places[2] = (struct request_place){ p->count, PREFIX_PROMPT_END };
    add(p, ID_ASSISTANT);
    add(p, ID_THINK);
}

/* -------------------------------------------------------------------- requests */

/* Tokens of the prompt that an earlier request held, too. */
static uint32_t shared_with(const struct world *w, const struct seen *seen, const struct prompt *p)
{
    uint32_t i = 0;
    while (i < p->count - 1 && i < seen->count) {
        if ((seen->tokens[i] & ~TOKEN_GENERATED) != (uint32_t)p->tokens[i]) break;
        if (w->exact && (seen->tokens[i] & TOKEN_GENERATED)) break;
        i++;
    }
    return i;
}

static void remember(struct world *w, const struct sequence *state)
{
    assert_true(w->seen_count < SEEN_MAX);
    struct seen *seen = &w->seen[w->seen_count++];
    seen->count = state->position;
    seen->tokens = malloc(state->position * sizeof *seen->tokens);
    assert_non_null(seen->tokens);
    memcpy(seen->tokens, state->tokens, state->position * sizeof *seen->tokens);
}

static void answer(struct world *w, const struct prompt *p, const struct message *m)
{
    static struct prompt generated;
    struct request r = { .wishes = { .prompt = p->tokens, .prompt_count = p->count } };
    struct sequence *state = &r.sequence.state;
    struct prefix_tree *tree = w->bench.tree;
    uint32_t shared = 0;
    for (size_t i = 0; i < 3; i++)
        if (i == 0 || p->places[i].position > p->places[i - 1].position)
            r.wishes.places[r.wishes.place_count++] = p->places[i];
    for (size_t i = 0; i < w->seen_count; i++) {
        uint32_t with = shared_with(w, &w->seen[i], p);
        if (with > shared) shared = with;
    }
    sequence_init(state, &w->bench.pool, LENGTH_MAX);
    assert_int_equal(request_resume(&r, tree, NULL), MF_OK);
    assert_true(state->position <= shared && prefix_bench_verify(state));
    w->shared += shared;
    w->resumed += state->position;
    while (state->position < p->count) {
        uint32_t stop = request_next_stop(&r, tree), at = state->position;
        assert_true(stop > at && stop <= p->count);
        assert_int_equal(prefix_bench_feed(state, p->tokens + at, stop - at, false), MF_OK);
        request_keep(&r, tree);
    }
    r.answering = true;
    generated.count = 0;
    add_answer(&generated, m, true);
    assert_int_equal(prefix_bench_feed(state, generated.tokens, generated.count, true), MF_OK);
    request_keep_answer(&r, tree);
    remember(w, state);
    sequence_free(state);
    w->bench.seconds += 20;
}

static struct message *add_message(struct world *w, struct session *s, enum role role)
{
    assert_true(s->count < MESSAGES_MAX);
    struct message *m = &s->messages[s->count++];
    *m = (struct message){ role, random_from(w, 1, 1u << 30), 0, random_from(w, 20, 300) };
    if (role == ASSISTANT) m->thought = random_from(w, 50, 300);
    return m;
}

/* A prompt is rendered without the answer that is to come. */
static void ask(struct world *w, struct session *s)
{
    static struct prompt p;
    render(&p, s);
    answer(w, &p, add_message(w, s, ASSISTANT));
}

static void run_turn(struct world *w, struct session *s)
{
    uint32_t calls = random_from(w, 0, 5), change = random_from(w, 0, 4);
    if (change == 0 && s->count >= 2) {
        s->count--; /* the answer again */
    } else {
        if (change == 1 && s->count >= 2 && s->messages[s->count - 2].role == USER)
            s->count -= 2; /* the last question in other words */
        add_message(w, s, USER);
    }
    ask(w, s);
    for (uint32_t i = 0; i < calls; i++) {
        add_message(w, s, TOOL);
        ask(w, s);
    }
}

static void run_world(bool recurrent, bool exact)
{
    struct world *w = calloc(1, sizeof *w);
    struct session *sessions = calloc(SESSIONS, sizeof *sessions);
    assert_true(w && sessions);
    w->exact = exact;
    w->random = 5;
    prefix_bench_open(&w->bench,
                      &(struct prefix_bench_options){ .recurrent = recurrent, .exact = exact });
    for (uint32_t i = 0; i < SESSIONS; i++) sessions[i].head = i == SESSIONS - 1 ? 2 : 1;
    for (int turn = 0; turn < TURNS; turn++)
        for (int i = 0; i < SESSIONS; i++) run_turn(w, &sessions[i]);
    print_message("%s, %s: %zu requests share %llu tokens with an earlier one and resume %.2f %%\n",
                  recurrent ? "recurrent layers" : "attention alone", exact ? "exact" : "reuse",
                  w->seen_count, (unsigned long long)w->shared,
                  100.0 * (double)w->resumed / (double)w->shared);
    assert_true(w->shared > UINT64_C(16000) * (w->seen_count - 2));
    assert_true((double)w->resumed >= 0.95 * (double)w->shared);
    if (!recurrent) assert_int_equal(w->resumed, w->shared);
    for (size_t i = 0; i < w->seen_count; i++) free(w->seen[i].tokens);
    prefix_bench_close(&w->bench);
    free(sessions);
    free(w);
}

static void agents_resume_what_they_share(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) run_world(i / 2 == 0, i % 2 == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(agents_resume_what_they_share),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
