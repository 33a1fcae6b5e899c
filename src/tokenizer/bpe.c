/* bpe.c: from the bytes of a piece to its tokens.
 *
 * BPE merges the adjacent pair of lowest rank, the leftmost of equals, until none is left.
 * A short piece is scanned for its best pair each time: quadratic, but with no bookkeeping,
 * and faster up to a few dozen bytes.  A longer one keeps its symbols in a linked list and
 * its pairs in a heap ordered by (rank, position): O(n log n), whatever the text.
 *
 *     symbols   [Ġ]⇄[t]⇄[h]⇄[e]          heap   (Ġ t, rank 0, at 0) (h e, rank 2, at 2) …
 *     pop       [Ġt]⇄[h]⇄[e]             a symbol remembers the rank of the pair it begins;
 *                                        heap entries that say otherwise are stale, skipped
 */
#include "tokenizer/internal.h"

#include "base/status.h"
#include "base/utf8.h"

#include <stdatomic.h>
#include <stdlib.h>

enum { SHORT_PIECE = 40 };

#define NO_SYMBOL UINT32_MAX

struct bpe_symbol {
    uint32_t id;
    uint32_t rank; /* of the pair that begins here; RANK_NONE: none, or this symbol is gone */
    uint32_t result;
    uint32_t before, after; /* neighbours, NO_SYMBOL at the ends */
};

/* ------------------------------------------------------------------ merge table */

static size_t pair_hash(uint32_t left, uint32_t right)
{
    uint64_t key = ((uint64_t)left << 32 | right) * 0x9E3779B97F4A7C15u;
    return (size_t)(key >> 32 ^ key >> 15);
}

/* The bit of a pair in the filter, which has 8 of them for every bucket. */
static size_t filter_bit(const struct merge_table *table, size_t hash)
{
    return hash & (8 * table->mask + 7);
}

static void put(struct merge_table *table, struct merge merge)
{
    size_t hash = pair_hash(merge.left, merge.right), at = hash & table->mask;
    size_t bit = filter_bit(table, hash);
    table->filter[bit / 8] |= (uint8_t)(1u << bit % 8);
    for (;; at = (at + 1) & table->mask) {
        struct merge *bucket = &table->buckets[at];
        bool same = bucket->left == merge.left && bucket->right == merge.right;
        if (!same && bucket->left != RANK_NONE) continue;
        table->count += !same;
        *bucket = merge;
        return;
    }
}

void merge_table_free(struct merge_table *table)
{
    free(table->buckets);
    free(table->filter);
}

mf_status merge_table_reserve(struct merge_table *table, size_t count, mf_error *why)
{
    uint64_t bucket_count = 16, bytes;
    while (bucket_count < 2 * (uint64_t)count) bucket_count *= 2;
    if (table->buckets && bucket_count <= table->mask + 1) return MF_OK;
    if (!checked_multiply(&bytes, bucket_count, sizeof *table->buckets) || bytes > SIZE_MAX / 2)
        return fail_memory(why, SIZE_MAX);
    struct merge_table grown = { .buckets = malloc(bytes),
                                 .filter = calloc(bucket_count, 1),
                                 .mask = bucket_count - 1 };
    if (!grown.buckets || !grown.filter) {
        merge_table_free(&grown);
        return fail_memory(why, bytes);
    }
    memset(grown.buckets, 0xFF, bytes); /* left RANK_NONE: empty */
    for (size_t i = 0; table->buckets && i <= table->mask; i++)
        if (table->buckets[i].left != RANK_NONE) put(&grown, table->buckets[i]);
    struct merge_table old = *table;
    *table = grown;
    merge_table_free(&old);
    return MF_OK;
}

mf_status merge_table_put(struct merge_table *table, struct merge merge, mf_error *why)
{
    mf_status status = merge_table_reserve(table, table->count + 1, why);
    if (status == MF_OK) put(table, merge);
    return status;
}

const struct merge *merge_table_find(const struct merge_table *table, uint32_t left, uint32_t right)
{
    size_t hash = pair_hash(left, right), at = hash & table->mask;
    size_t bit = filter_bit(table, hash);
    if (!(table->filter[bit / 8] >> bit % 8 & 1)) return NULL;
    for (;; at = (at + 1) & table->mask) {
        const struct merge *bucket = &table->buckets[at];
        if (bucket->left == left && bucket->right == right) return bucket;
        if (bucket->left == RANK_NONE) return NULL;
    }
}

/* --------------------------------------------------------------------- symbols */

/* U+FFFD replaces a byte that is not in the vocabulary. */
static const uint8_t replacement[] = { 0xEF, 0xBF, 0xBD };

static mf_status add_byte(struct bpe_symbol *symbols, size_t *count,
                          const struct tokenizer *tokenizer, uint8_t byte, mf_error *why)
{
    if (tokenizer->byte_ids[byte] >= 0) {
        symbols[(*count)++].id = (uint32_t)tokenizer->byte_ids[byte];
        return MF_OK;
    }
    for (size_t i = 0; i < sizeof replacement; i++) {
        int32_t id = tokenizer->byte_ids[replacement[i]];
        if (id < 0)
            return fail(why, MF_ERR_FORMAT,
                        "the vocabulary has no token for byte 0x%02X and none for U+FFFD", byte);
        symbols[(*count)++].id = (uint32_t)id;
    }
    return MF_OK;
}

static bool has_all_bytes(const struct tokenizer *tokenizer, struct text_span piece)
{
    int32_t all = 0;
    for (size_t i = 0; i < piece.length; i++) all |= tokenizer->byte_ids[(uint8_t)piece.text[i]];
    return all >= 0;
}

/* The symbols of a text whose characters are merged: bytes stand in for one that is no token. */
static mf_status add_characters(struct bpe_symbol *symbols, size_t *count,
                                const struct tokenizer *tokenizer, struct text_span piece,
                                mf_error *why)
{
    mf_status status = MF_OK;
    for (size_t at = 0, size; status == MF_OK && at < piece.length; at += size) {
        const char *text = piece.text + at;
        uint32_t character;
        size = utf8_decode(&character, text, piece.length - at);
        int32_t id = size > 1 ? vocabulary_find(&tokenizer->vocabulary, text, size) : -1;
        if (id >= 0) {
            symbols[(*count)++].id = (uint32_t)id;
            continue;
        }
        for (size_t i = 0; i < size && status == MF_OK; i++)
            status = add_byte(symbols, count, tokenizer, (uint8_t)text[i], why);
    }
    return status;
}

static mf_status load_symbols(struct bpe_scratch *scratch, size_t *count,
                              const struct tokenizer *tokenizer, struct text_span piece,
                              mf_error *why)
{
    *count = 0;
    /* One symbol a byte, three where U+FFFD stands in. */
    size_t most = has_all_bytes(tokenizer, piece) ? piece.length : 3 * piece.length;
    mf_status status = ARRAY_RESERVE(scratch->symbols, scratch->symbol_capacity, most, NULL, why);
    if (tokenizer->spaces && status == MF_OK)
        return add_characters(scratch->symbols, count, tokenizer, piece, why);
    for (size_t i = 0; status == MF_OK && i < piece.length; i++)
        status = add_byte(scratch->symbols, count, tokenizer, (uint8_t)piece.text[i], why);
    return status;
}

static void look_up_pair(struct bpe_symbol *symbol, uint32_t right, const struct tokenizer *from)
{
    const struct merge *merge = merge_table_find(&from->merges, symbol->id, right);
    symbol->rank = merge ? merge->rank : RANK_NONE;
    symbol->result = merge ? merge->result : 0;
}

static mf_status append_symbols(struct token_list *out, const struct bpe_symbol *symbols,
                                size_t count, mf_error *why)
{
    mf_status status = ARRAY_RESERVE(out->ids, out->capacity, out->count + count, NULL, why);
    if (status != MF_OK) return status;
    for (size_t i = 0; i < count; i++) out->ids[out->count++] = (int32_t)symbols[i].id;
    return MF_OK;
}

/* ---------------------------------------------------------------- short pieces */

/* Merges in place; returns how many symbols are left. */
static size_t merge_short(struct bpe_symbol *symbols, size_t count, const struct tokenizer *from)
{
    for (size_t i = 0; i + 1 < count; i++) look_up_pair(&symbols[i], symbols[i + 1].id, from);
    symbols[count - 1].rank = RANK_NONE;
    for (;;) {
        size_t best = 0;
        for (size_t i = 1; i < count; i++)
            if (symbols[i].rank < symbols[best].rank) best = i;
        if (symbols[best].rank == RANK_NONE) return count;

        symbols[best].id = symbols[best].result;
        count--;
        memmove(&symbols[best + 1], &symbols[best + 2], (count - best - 1) * sizeof *symbols);
        if (best > 0) look_up_pair(&symbols[best - 1], symbols[best].id, from);
        if (best + 1 < count)
            look_up_pair(&symbols[best], symbols[best + 1].id, from);
        else
            symbols[best].rank = RANK_NONE;
    }
}

/* ----------------------------------------------------------------- long pieces */

static mf_status heap_push(struct bpe_scratch *scratch, uint64_t key, mf_error *why)
{
    mf_status status =
        ARRAY_RESERVE(scratch->heap, scratch->heap_capacity, scratch->heap_count + 1, NULL, why);
    if (status != MF_OK) return status;
    uint64_t *heap = scratch->heap;
    size_t at = scratch->heap_count++;
    for (; at > 0 && heap[(at - 1) / 2] > key; at = (at - 1) / 2) heap[at] = heap[(at - 1) / 2];
    heap[at] = key;
    return MF_OK;
}

static uint64_t heap_pop(struct bpe_scratch *scratch)
{
    uint64_t *heap = scratch->heap;
    uint64_t top = heap[0], last = heap[--scratch->heap_count];
    size_t at = 0, count = scratch->heap_count;
    for (size_t child; (child = 2 * at + 1) < count; at = child) {
        if (child + 1 < count && heap[child + 1] < heap[child]) child++;
        if (heap[child] >= last) break;
        heap[at] = heap[child];
    }
    heap[at] = last;
    return top;
}

/* Looks up the pair that begins at `at` and queues it. */
static mf_status queue_pair(struct bpe_scratch *scratch, uint32_t at, const struct tokenizer *from,
                            mf_error *why)
{
    struct bpe_symbol *symbol = &scratch->symbols[at];
    symbol->rank = RANK_NONE;
    if (symbol->after == NO_SYMBOL) return MF_OK;
    look_up_pair(symbol, scratch->symbols[symbol->after].id, from);
    if (symbol->rank == RANK_NONE) return MF_OK;
    return heap_push(scratch, (uint64_t)symbol->rank << 32 | at, why);
}

static mf_status merge_at(struct bpe_scratch *scratch, uint32_t at, const struct tokenizer *from,
                          mf_error *why)
{
    struct bpe_symbol *symbols = scratch->symbols;
    struct bpe_symbol *left = &symbols[at];
    struct bpe_symbol *right = &symbols[left->after];
    left->id = left->result;
    left->after = right->after;
    right->rank = RANK_NONE;
    if (left->after != NO_SYMBOL) symbols[left->after].before = at;

    mf_status status = queue_pair(scratch, at, from, why);
    if (status == MF_OK && left->before != NO_SYMBOL)
        status = queue_pair(scratch, left->before, from, why);
    return status;
}

static mf_status merge_long(struct bpe_scratch *scratch, size_t *count,
                            const struct tokenizer *from, mf_error *why)
{
    struct bpe_symbol *symbols = scratch->symbols;
    mf_status status = MF_OK;
    scratch->heap_count = 0;
    for (uint32_t i = 0; i < *count; i++) {
        symbols[i].before = i > 0 ? i - 1 : NO_SYMBOL;
        symbols[i].after = i + 1 < *count ? i + 1 : NO_SYMBOL;
    }
    for (uint32_t i = 0; status == MF_OK && i < *count; i++)
        status = queue_pair(scratch, i, from, why);

    while (status == MF_OK && scratch->heap_count > 0) {
        uint64_t key = heap_pop(scratch);
        uint32_t at = (uint32_t)key;
        if (symbols[at].rank == key >> 32) status = merge_at(scratch, at, from, why);
    }
    size_t left = 0;
    for (uint32_t i = 0; status == MF_OK && i != NO_SYMBOL; i = symbols[i].after)
        symbols[left++].id = symbols[i].id; /* left <= i: what is overwritten has been read */
    *count = left;
    return status;
}

/* ---------------------------------------------------------------------- pieces */

static mf_status merge_piece(struct token_list *out, struct bpe_scratch *scratch,
                             const struct tokenizer *tokenizer, struct text_span piece,
                             mf_error *why)
{
    size_t count;
    mf_status status = load_symbols(scratch, &count, tokenizer, piece, why);
    if (status != MF_OK || count == 0) return status;
    if (count <= SHORT_PIECE)
        count = merge_short(scratch->symbols, count, tokenizer);
    else
        status = merge_long(scratch, &count, tokenizer, why);
    if (status != MF_OK) return status;
    return append_symbols(out, scratch->symbols, count, why);
}

mf_status bpe_encode_piece(struct token_list *out, struct bpe_scratch *scratch,
                           const struct tokenizer *tokenizer, struct text_span piece, mf_error *why)
{
    /* Most pieces of ordinary text are tokens, and BPE nearly always merges a token's bytes to that
     * token.  This is checked at the first use and cached. */
    int32_t id = vocabulary_find(&tokenizer->vocabulary, piece.text, piece.length);
    if (id < 0) return merge_piece(out, scratch, tokenizer, piece, why);
    uint8_t whole = atomic_load_explicit(&tokenizer->whole[id], memory_order_relaxed);
    if (whole == WHOLE_YES || tokenizer->ignore_merges) return token_list_append(out, id, why);

    size_t begin = out->count;
    mf_status status = merge_piece(out, scratch, tokenizer, piece, why);
    if (status == MF_OK && whole == WHOLE_UNKNOWN) {
        bool made = out->count == begin + 1 && out->ids[begin] == id;
        atomic_store_explicit(&tokenizer->whole[id], made ? WHOLE_YES : WHOLE_NO,
                              memory_order_relaxed);
    }
    return status;
}

void bpe_scratch_free(struct bpe_scratch *scratch)
{
    free(scratch->symbols);
    free(scratch->heap);
}
