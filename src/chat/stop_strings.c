#include "chat/stop_strings.h"

#include "base/arena.h"
#include "base/status.h"

/* One string, matched by Knuth, Morris and Pratt: `matched` is the length of its longest
 * beginning that the text so far ends with. */
struct stop_string {
    const char *text;
    size_t length, matched;
    uint16_t *fallback; /* [length]: the longest proper beginning that text[0..i] ends with */
};

struct stop_strings {
    struct arena arena;
    struct stop_string *strings; /* [count] */
    size_t count;
    const struct stop_string *held; /* the text ends with its first `matched` bytes; or NULL */
    const struct stop_string *found;
};

static void fill_fallback(struct stop_string *string)
{
    size_t k = 0;
    for (size_t i = 1; i < string->length; i++) {
        while (k > 0 && string->text[i] != string->text[k]) k = string->fallback[k - 1];
        if (string->text[i] == string->text[k]) k++;
        string->fallback[i] = (uint16_t)k;
    }
}

static mf_status copy_string(struct stop_string *out, struct arena *arena, const char *text,
                             mf_error *why)
{
    size_t length = strnlen(text, STOP_STRING_BYTES_LIMIT + 1);
    if (length == 0 || length > STOP_STRING_BYTES_LIMIT)
        return fail(why, MF_ERR_ARGUMENT, "a stop string is %s, 1 to %d bytes were expected",
                    length ? "too long" : "empty", STOP_STRING_BYTES_LIMIT);
    out->text = arena_text(arena, text, length);
    out->fallback = ARENA_NEW(arena, uint16_t, length);
    out->length = length;
    if (!out->text || !out->fallback) return fail_memory(why, length * 3);
    fill_fallback(out);
    return MF_OK;
}

mf_status stop_strings_new(struct stop_strings **out, const mf_allocator *allocator,
                           const char *const *strings, size_t count, mf_error *why)
{
    *out = NULL;
    if (count > STOP_STRING_COUNT_LIMIT)
        return fail(why, MF_ERR_ARGUMENT, "%zu stop strings, at most %d", count,
                    STOP_STRING_COUNT_LIMIT);
    struct arena arena;
    arena_init(&arena, allocator);
    struct stop_strings *stops = ARENA_NEW(&arena, struct stop_strings, 1);
    if (!stops) return fail_memory(why, sizeof *stops);
    mf_status status = MF_OK;
    stops->count = count;
    stops->strings = ARENA_NEW(&arena, struct stop_string, count);
    if (!stops->strings) status = fail_memory(why, count * sizeof *stops->strings);
    for (size_t i = 0; i < count && status == MF_OK; i++)
        status = copy_string(&stops->strings[i], &arena, strings[i], why);
    stops->arena = arena;
    if (status == MF_OK)
        *out = stops;
    else
        arena_free(&arena);
    return status;
}

void stop_strings_free(struct stop_strings *stops)
{
    if (!stops) return;
    struct arena arena = stops->arena; /* it holds `stops` itself */
    arena_free(&arena);
}

void stop_strings_reset(struct stop_strings *stops)
{
    for (size_t i = 0; i < stops->count; i++) stops->strings[i].matched = 0;
    stops->held = stops->found = NULL;
}

/* True when the string is complete. */
static bool match_byte(struct stop_string *string, char byte)
{
    size_t k = string->matched;
    while (k > 0 && string->text[k] != byte) k = string->fallback[k - 1];
    string->matched = string->text[k] == byte ? k + 1 : 0;
    return string->matched == string->length;
}

/* Follows one byte in every string; the longest one that it completes becomes `found`. */
static void advance(struct stop_strings *stops, char byte)
{
    for (size_t i = 0; i < stops->count; i++) {
        struct stop_string *string = &stops->strings[i];
        bool complete = match_byte(string, byte);
        if (complete && (!stops->found || string->length > stops->found->length))
            stops->found = string;
    }
}

static const struct stop_string *longest_beginning(const struct stop_strings *stops)
{
    const struct stop_string *longest = NULL;
    for (size_t i = 0; i < stops->count; i++) {
        const struct stop_string *string = &stops->strings[i];
        if (string->matched > (longest ? longest->matched : 0)) longest = string;
    }
    return longest;
}

/* Hands on the first `count` bytes of held[0..held_length) followed by text. */
static void hand_on(const char *held, size_t held_length, const char *text, size_t count,
                    stop_strings_emit emit, void *user)
{
    size_t from_held = min_size(held_length, count);
    if (from_held) emit(user, held, from_held);
    if (count > from_held) emit(user, text, count - from_held);
}

bool stop_strings_feed(struct stop_strings *stops, const char *text, size_t length,
                       stop_strings_emit emit, void *user)
{
    if (stops->found) return true;
    const char *held = stops->held ? stops->held->text : NULL;
    size_t held_length = stops->held ? stops->held->matched : 0;
    size_t used = 0;
    while (used < length && !stops->found) advance(stops, text[used++]);

    stops->held = stops->found ? NULL : longest_beginning(stops);
    size_t kept = stops->found ? stops->found->length : stops->held ? stops->held->matched : 0;
    hand_on(held, held_length, text, held_length + used - kept, emit, user);
    return stops->found != NULL;
}

void stop_strings_finish(struct stop_strings *stops, stop_strings_emit emit, void *user)
{
    if (stops->held) emit(user, stops->held->text, stops->held->matched);
    stop_strings_reset(stops);
}

const char *stop_strings_found(const struct stop_strings *stops)
{
    return stops->found ? stops->found->text : NULL;
}
