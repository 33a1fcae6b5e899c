#include "grammar/vocabulary.h"

#include "base/status.h"
#include "sampling/sampler.h"

#include <stdlib.h>

struct token_text {
    const uint8_t *bytes;
    uint32_t id;
    uint16_t length;
};

static bool is_end_token(const struct vocabulary_source *source, size_t id)
{
    for (size_t i = 0; i < source->end_count; i++)
        if ((size_t)source->end_tokens[i] == id) return true;
    return false;
}

static int by_bytes(const void *a, const void *b)
{
    const struct token_text *x = a, *y = b;
    int order = memcmp(x->bytes, y->bytes, min_size(x->length, y->length));
    if (order) return order;
    if (x->length != y->length) return x->length < y->length ? -1 : 1;
    return x->id < y->id ? -1 : x->id > y->id;
}

/* Copies of all usable texts, sorted; *count of them. */
static mf_status collect_texts(struct token_text **out, size_t *count, struct arena *scratch,
                               const struct vocabulary_source *source, mf_error *why)
{
    size_t token_count = source->token_count;
    struct token_text *texts = ARENA_NEW(scratch, struct token_text, token_count);
    if (!texts) return fail_memory(why, token_count * sizeof *texts);
    enum { CHUNK = 1 << 16 }; /* texts are short: cut from chunks, not taken one by one */
    uint8_t *chunk = NULL;
    size_t room = 0, kept = 0;
    for (size_t id = 0; id < token_count; id++) {
        size_t length = 0;
        const char *text = source->bytes(source->user, (int32_t)id, &length);
        if (!text || length == 0 || length > GRAMMAR_TOKEN_BYTES_LIMIT) continue;
        if (is_end_token(source, id)) continue; /* it stands for the end, not for its text */
        if (length > room) {
            chunk = ARENA_NEW(scratch, uint8_t, CHUNK);
            if (!chunk) return fail_memory(why, CHUNK);
            room = CHUNK;
        }
        memcpy(chunk, text, length);
        texts[kept++] = (struct token_text){ chunk, (uint32_t)id, (uint16_t)length };
        chunk += length;
        room -= length;
    }
    qsort(texts, kept, sizeof *texts, by_bytes);
    *out = texts;
    *count = kept;
    return MF_OK;
}

static size_t shared_bytes(const struct token_text *a, const struct token_text *b)
{
    size_t n = 0, limit = min_size(a->length, b->length);
    while (n < limit && a->bytes[n] == b->bytes[n]) n++;
    return n;
}

static size_t count_nodes(const struct token_text *texts, size_t count)
{
    size_t nodes = 1;
    for (size_t i = 0; i < count; i++)
        nodes += texts[i].length - (i ? shared_bytes(&texts[i - 1], &texts[i]) : 0);
    return nodes;
}

/* In sorted order every text continues some path of the one before it: `open` holds the nodes
 * of that path; those deeper than the shared part are closed. */
static void build_tree(struct grammar_vocabulary *v, const struct token_text *texts, size_t count)
{
    uint32_t open[GRAMMAR_TOKEN_BYTES_LIMIT + 1] = { 0 };
    size_t depth = 0, made = 1;
    for (size_t i = 0; i < count; i++) {
        size_t shared = i ? shared_bytes(&texts[i - 1], &texts[i]) : 0;
        for (; depth > shared; depth--) v->nodes[open[depth]].skip = (uint32_t)made;
        while (depth < texts[i].length) {
            uint8_t byte = texts[i].bytes[depth++];
            v->nodes[made] = (struct vocabulary_node){ .first_token = (uint32_t)i,
                                                       .depth = (uint16_t)depth,
                                                       .byte = byte };
            open[depth] = (uint32_t)made++;
        }
        v->sorted[i] = texts[i].id;
        v->token_node[texts[i].id] = open[depth];
        if (texts[i].length > v->longest) v->longest = texts[i].length;
    }
    for (; depth > 0; depth--) v->nodes[open[depth]].skip = (uint32_t)made;
    v->nodes[0].skip = (uint32_t)made;
    v->nodes[made] = (struct vocabulary_node){ .first_token = (uint32_t)count };
}

static mf_status fill(struct grammar_vocabulary *v, const struct vocabulary_source *source,
                      mf_error *why)
{
    struct arena scratch;
    arena_init(&scratch, v->arena.allocator);
    struct token_text *texts = NULL;
    size_t count = 0;
    mf_status status = collect_texts(&texts, &count, &scratch, source, why);
    if (status != MF_OK) goto done;
    v->sorted_count = count;
    v->node_count = count_nodes(texts, count);
    v->nodes = ARENA_NEW(&v->arena, struct vocabulary_node, v->node_count + 1);
    v->sorted = ARENA_NEW(&v->arena, uint32_t, count);
    v->token_node = ARENA_NEW(&v->arena, uint32_t, v->token_count);
    v->end_tokens = ARENA_NEW(&v->arena, int32_t, v->end_count);
    if (!v->nodes || !v->sorted || !v->token_node || !v->end_tokens) {
        status = fail_memory(why, v->node_count * sizeof *v->nodes);
        goto done;
    }
    if (v->end_count)
        memcpy(v->end_tokens, source->end_tokens, v->end_count * sizeof *v->end_tokens);
    build_tree(v, texts, count);
done:
    arena_free(&scratch);
    return status;
}

mf_status grammar_vocabulary_new(struct grammar_vocabulary **out, const mf_allocator *allocator,
                                 const struct vocabulary_source *source, mf_error *why)
{
    *out = NULL;
    size_t token_count = source->token_count, end_count = source->end_count;
    const int32_t *end_tokens = source->end_tokens;
    if (token_count == 0 || token_count > 1 << 24)
        return fail(why, MF_ERR_ARGUMENT, "a vocabulary of %zu tokens", token_count);
    for (size_t i = 0; i < end_count; i++)
        if (end_tokens[i] < 0 || (size_t)end_tokens[i] >= token_count)
            return fail(why, MF_ERR_ARGUMENT, "end token %d: ids are below %zu", end_tokens[i],
                        token_count);
    struct arena arena;
    arena_init(&arena, allocator);
    struct grammar_vocabulary *v = ARENA_NEW(&arena, struct grammar_vocabulary, 1);
    if (!v) return fail_memory(why, sizeof *v);
    v->arena = arena;
    v->token_count = token_count;
    v->mask_words = TOKEN_MASK_WORDS(token_count);
    v->end_count = end_count;
    mf_status status = fill(v, source, why);
    if (status != MF_OK)
        grammar_vocabulary_free(v);
    else
        *out = v;
    return status;
}

void grammar_vocabulary_free(struct grammar_vocabulary *vocabulary)
{
    if (!vocabulary) return;
    struct arena arena = vocabulary->arena; /* it holds the vocabulary itself */
    arena_free(&arena);
}

uint32_t vocabulary_child(const struct grammar_vocabulary *vocabulary, uint32_t node, uint8_t byte)
{
    const struct vocabulary_node *nodes = vocabulary->nodes;
    for (uint32_t child = node + 1; child < nodes[node].skip; child = nodes[child].skip)
        if (nodes[child].byte >= byte) return nodes[child].byte == byte ? child : 0;
    return 0;
}

size_t vocabulary_spell(const struct grammar_vocabulary *vocabulary, uint8_t *out, int32_t token)
{
    /* Down from the root: at every level the child whose range of nodes holds the token's. */
    const struct vocabulary_node *nodes = vocabulary->nodes;
    uint32_t target = vocabulary->token_node[token], at = 0;
    size_t length = 0;
    while (at != target) {
        uint32_t child = at + 1;
        while (nodes[child].skip <= target) child = nodes[child].skip;
        out[length++] = nodes[child].byte;
        at = child;
    }
    return length;
}
