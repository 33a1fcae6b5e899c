/* added.c: tokens such as "<|im_start|>", found before the text is split.
 *
 * The tokens stand sorted; those that begin with the bytes read so far are a range of the
 * list, which every further byte narrows:
 *
 *     "<|im_s…"    <  → [</think> … <|im_start|>]    <| → [<|endoftext|> … <|im_start|>]   …
 */
#include "tokenizer/internal.h"

#include "base/status.h"
#include "base/utf8.h"

#include <stdlib.h>

mf_status added_set_add(struct added_set *set, struct added_token token, mf_error *why)
{
    mf_status status = ARRAY_RESERVE(set->tokens, set->capacity, set->count + 1, NULL, why);
    if (status == MF_OK) set->tokens[set->count++] = token;
    return status;
}

static int compare_spans(struct text_span a, struct text_span b)
{
    int order = memcmp(a.text, b.text, min_size(a.length, b.length));
    if (order != 0) return order;
    return a.length < b.length ? -1 : a.length > b.length;
}

static int compare_tokens(const void *a, const void *b)
{
    return compare_spans(((const struct added_token *)a)->text,
                         ((const struct added_token *)b)->text);
}

void added_set_sort(struct added_set *set)
{
    if (set->count) qsort(set->tokens, set->count, sizeof *set->tokens, compare_tokens);
    uint32_t at = 0;
    for (unsigned byte = 0; byte < 256; byte++) {
        set->first[byte] = at;
        while (at < set->count && (uint8_t)set->tokens[at].text.text[0] == byte) at++;
    }
    set->first[256] = at;
}

void added_set_free(struct added_set *set)
{
    free(set->tokens);
}

int32_t added_set_find(const struct added_set *set, struct text_span text)
{
    struct added_token wanted = { .text = text };
    if (set->count == 0) return -1;
    const struct added_token *found =
        bsearch(&wanted, set->tokens, set->count, sizeof *set->tokens, compare_tokens);
    return found ? found->id : -1;
}

/* ------------------------------------------------------------------- searching */

/* The first token in [low, high), all alike in their first `depth` bytes, whose byte at
 * `depth` is at least `byte`.  A token that ends there comes before the others. */
static size_t first_with(const struct added_set *set, size_t low, size_t high, size_t depth,
                         unsigned byte)
{
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        struct text_span text = set->tokens[middle].text;
        if (text.length > depth && (uint8_t)text.text[depth] >= byte)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

/* The longest token that stands at the beginning of `text`, or NULL. */
static const struct added_token *longest_at(const struct added_set *set, struct text_span text)
{
    uint8_t lead = (uint8_t)text.text[0];
    size_t low = set->first[lead], high = set->first[lead + 1];
    const struct added_token *found = NULL;
    for (size_t depth = 1; low < high; depth++) {
        if (set->tokens[low].text.length == depth) found = &set->tokens[low];
        if (depth == text.length) break;
        unsigned byte = (uint8_t)text.text[depth];
        low = first_with(set, low, high, depth, byte);
        high = first_with(set, low, high, depth, byte + 1);
    }
    return found;
}

/* ------------------------------------------------------------------ conditions */

static bool word_begins(struct text_span text, size_t at)
{
    uint32_t character;
    if (at >= text.length) return false;
    utf8_decode(&character, text.text + at, text.length - at);
    return character != UTF8_INVALID && character_is_word(character);
}

/* The character that ends at `at`; its length, 0 when there is none. */
static size_t character_before(uint32_t *out, struct text_span text, size_t at)
{
    for (size_t length = 1; length <= UTF8_MAX && length <= at; length++)
        if (utf8_decode(out, text.text + at - length, length) == length && *out != UTF8_INVALID)
            return length;
    return 0;
}

static bool word_ends(struct text_span text, size_t at)
{
    uint32_t character;
    return character_before(&character, text, at) > 0 && character_is_word(character);
}

static size_t spaces_before(struct text_span text, size_t from, size_t at)
{
    uint32_t character;
    size_t begin = at, length;
    while ((length = character_before(&character, text, begin)) > 0 && begin >= from + length &&
           character_is_space(character))
        begin -= length;
    return begin;
}

static size_t spaces_after(struct text_span text, size_t at)
{
    while (at < text.length) {
        uint32_t character;
        size_t length = utf8_decode(&character, text.text + at, text.length - at);
        if (character == UTF8_INVALID || !character_is_space(character)) break;
        at += length;
    }
    return at;
}

/* The first range that ends behind `at`, or the count. */
static size_t range_behind(const struct content_ranges *content, size_t at)
{
    size_t low = 0, high = content->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (content->list[middle].offset + content->list[middle].length > at)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

size_t content_begin(const struct content_ranges *content, size_t at)
{
    size_t range = range_behind(content, at + content->origin);
    if (range == content->count) return SIZE_MAX;
    size_t begin = content->list[range].offset;
    return begin > at + content->origin ? begin - content->origin : at;
}

/* The longest token at `at` that is markup from its first to its last byte. */
static const struct added_token *markup_at(const struct added_set *set,
                                           const struct added_search *search, size_t at)
{
    size_t end = min_size(content_begin(&search->content, at), search->text.length);
    if (end == at) return NULL;
    return longest_at(set, (struct text_span){ search->text.text + at, end - at });
}

bool added_set_next(struct added_match *out, const struct added_set *set,
                    const struct added_search *search, size_t from)
{
    struct text_span text = search->text;
    if (set->count == 0 || search->mode == SPECIAL_NONE) return false;
    for (size_t at = from; at < text.length;) {
        uint8_t lead = (uint8_t)text.text[at];
        if (set->first[lead] == set->first[lead + 1]) {
            at++;
            continue;
        }
        const struct added_token *token = markup_at(set, search, at);
        if (!token) {
            at++;
            continue;
        }
        size_t end = at + token->text.length;
        bool barred = token->special && search->mode == SPECIAL_AS_TEXT;
        if (!barred && token->single_word) barred = word_ends(text, at) || word_begins(text, end);
        if (!barred) {
            out->begin = token->strip_left ? spaces_before(text, from, at) : at;
            out->end = token->strip_right ? spaces_after(text, end) : end;
            out->id = token->id;
            return true;
        }
        at = end;
    }
    return false;
}
