#include "sampling/token_history.h"

#include "base/status.h"

mf_status token_history_init(struct token_history *history, struct arena *arena, size_t window,
                             size_t vocab_size, mf_error *why)
{
    *history = (struct token_history){ .window = window, .vocab_size = vocab_size };
    if (window == 0) return MF_OK;
    history->ring = ARENA_NEW(arena, int32_t, window);
    history->ring_generated = ARENA_NEW(arena, bool, window);
    history->distinct = ARENA_NEW(arena, int32_t, window);
    history->reversed = ARENA_NEW(arena, int32_t, window);
    history->matching = ARENA_NEW(arena, uint32_t, window);
    history->counts = ARENA_NEW(arena, uint32_t, vocab_size);
    history->generated = ARENA_NEW(arena, uint32_t, vocab_size);
    history->place = ARENA_NEW(arena, uint32_t, vocab_size);
    history->repeated = ARENA_NEW(arena, uint32_t, vocab_size);
    history->breaks = ARENA_NEW(arena, bool, vocab_size);
    bool complete = history->ring && history->ring_generated && history->distinct &&
                    history->reversed && history->matching && history->counts &&
                    history->generated && history->place && history->repeated && history->breaks;
    return complete ? MF_OK : fail_memory(why, vocab_size * 17 + window * 17);
}

void token_history_clear(struct token_history *history)
{
    for (size_t i = 0; i < history->distinct_count; i++) {
        history->counts[history->distinct[i]] = 0;
        history->generated[history->distinct[i]] = 0;
    }
    history->distinct_count = history->length = history->next = 0;
}

static void forget_oldest(struct token_history *history)
{
    /* The ring is full, so the oldest lies where the next one goes. */
    int32_t token = history->ring[history->next];
    if (history->ring_generated[history->next]) history->generated[token]--;
    if (--history->counts[token] == 0) {
        uint32_t hole = history->place[token];
        int32_t moved = history->distinct[--history->distinct_count];
        history->distinct[hole] = moved;
        history->place[moved] = hole;
    }
    history->length--;
}

void token_history_push(struct token_history *history, int32_t token, bool generated)
{
    if (history->window == 0 || token < 0 || (size_t)token >= history->vocab_size) return;
    if (history->length == history->window) forget_oldest(history);
    history->ring[history->next] = token;
    history->ring_generated[history->next] = generated;
    history->next = history->next + 1 == history->window ? 0 : history->next + 1;
    history->length++;
    if (history->counts[token]++ == 0) {
        history->place[token] = (uint32_t)history->distinct_count;
        history->distinct[history->distinct_count++] = token;
    }
    history->generated[token] += generated;
}

/* Fills reversed[length]; how many of the newest tokens are free of breakers. */
static size_t reverse_history(struct token_history *history)
{
    size_t at = history->next;
    size_t suffix = history->length;
    for (size_t i = 0; i < history->length; i++) {
        at = at == 0 ? history->window - 1 : at - 1;
        history->reversed[i] = history->ring[at];
        if (suffix == history->length && history->breaks[history->ring[at]]) suffix = i;
    }
    return suffix;
}

/* matching[i] = how many tokens from i on equal the newest ones (Z function of the reversed
 * text).  `suffix` tokens are free of breakers, so a match longer than that is cut to it. */
static void match_suffixes(struct token_history *history, size_t suffix)
{
    const int32_t *text = history->reversed;
    uint32_t *z = history->matching;
    size_t length = history->length, left = 0, right = 0;
    for (size_t i = 1; i < length; i++) {
        size_t n = i < right ? min_size(z[i - left], right - i) : 0;
        while (i + n < length && text[n] == text[i + n]) n++;
        if (i + n > right) {
            left = i;
            right = i + n;
        }
        z[i] = (uint32_t)n;
    }
    for (size_t i = 1; i < length; i++) z[i] = (uint32_t)min_size(z[i], suffix);
}

/* The power by squaring: the same bits everywhere, which pow does not promise.  Bounded, so
 * that a long repetition leaves a score finite. */
static float dry_penalty(const struct dry_options *options, size_t length)
{
    float base = options->base, result = options->multiplier;
    for (size_t exponent = length - options->allowed_length; exponent; exponent >>= 1) {
        if (exponent & 1) result *= base;
        base *= base;
    }
    return result < 1e6f ? result : 1e6f;
}

void token_history_apply_dry(struct token_history *history, float *scores, size_t usable,
                             const struct dry_options *options)
{
    size_t suffix = history->length ? reverse_history(history) : 0;
    if (suffix == 0) return;
    match_suffixes(history, suffix);

    /* The token after a match is the one before it in the reversed text.  A token may follow
     * several matches: the longest counts, once. */
    for (size_t i = 1; i < history->length; i++) {
        int32_t follower = history->reversed[i - 1];
        if (history->matching[i] > history->repeated[follower])
            history->repeated[follower] = history->matching[i];
    }
    for (size_t i = 0; i < history->distinct_count; i++) {
        int32_t token = history->distinct[i];
        size_t length = history->repeated[token];
        history->repeated[token] = 0;
        if (length < options->allowed_length || (size_t)token >= usable) continue;
        scores[token] -= dry_penalty(options, length);
    }
}
