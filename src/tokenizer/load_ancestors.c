/* load_ancestors.c: the tokenizers of the project's ancestors.  Integers are little-endian.
 *
 *     tokenizer.bin                          vocab.bin, for decoding only
 *     offset  bytes                          offset  bytes
 *     0       4   "BPET"                     0       4   number of entries
 *     4       4   version, 1                 4       4   highest id
 *     8       4   number of tokens           8       …   of each id from 0: u16 length, the
 *     12      4   number of merges                       token's own bytes; length 0: no token
 *     16      4   number of added tokens
 *     20      …   tokens: u32 id, u16 length, byte-level text, ascending ids
 *                 merges: u16 length, text, u16 length, text, by rank
 *                 added tokens: u32 id, u16 length, text
 *
 * Neither says how a text is split, nor which added tokens are hidden from a reader: the first
 * is the model's family, the second shows in their spelling, "<|im_end|>" but "<think>". */
#include "tokenizer/internal.h"

#include "base/file.h"
#include "base/status.h"

#include <stdlib.h>

/* The least bytes of a record. */
enum { TOKEN_MIN = 6, MERGE_MIN = 4 };

struct cursor {
    const char *at, *end, *path;
    mf_error *why;
    mf_status status; /* the first problem; later reads give nothing */
};

static size_t left(const struct cursor *c)
{
    return (size_t)(c->end - c->at);
}

static const char *take(struct cursor *c, size_t count, const char *what)
{
    if (c->status == MF_OK && left(c) < count)
        c->status = fail(c->why, MF_ERR_FORMAT, "%s ends inside %s", c->path, what);
    if (c->status != MF_OK) return NULL;
    c->at += count;
    return c->at - count;
}

static uint32_t take_u32(struct cursor *c, const char *what)
{
    const char *bytes = take(c, 4, what);
    return bytes ? load_u32(bytes) : 0;
}

/* A u16 length and that many bytes. */
static struct text_span take_text(struct cursor *c, const char *what)
{
    const char *bytes = take(c, 2, what);
    size_t length = bytes ? load_u16(bytes) : 0;
    return (struct text_span){ take(c, length, what), c->status == MF_OK ? length : 0 };
}

/* ------------------------------------------------------------------------ building */

/* What the tables point to; the texts lie in the file's bytes. */
struct packed {
    struct text_span *tokens, *lefts, *rights;
    int32_t *types;
    size_t token_capacity;
    struct tokenizer_tables tables;
};

static void packed_free(struct packed *p)
{
    free(p->tokens);
    free(p->lefts);
    free(p->rights);
    free(p->types);
}

/* A number of records that there are bytes for. */
static bool counts_fit(struct cursor *c, const uint32_t counts[3])
{
    uint64_t least = (uint64_t)TOKEN_MIN * counts[0] + (uint64_t)MERGE_MIN * counts[1] +
                     (uint64_t)TOKEN_MIN * counts[2];
    if (c->status == MF_OK && least > left(c))
        c->status = fail(c->why, MF_ERR_FORMAT,
                         "%s has %zu bytes for %u tokens, %u merges and %u added tokens", c->path,
                         left(c), counts[0], counts[1], counts[2]);
    return c->status == MF_OK;
}

/* Room for ids below `count`, which is bounded by the size of the file. */
static mf_status new_tables(struct packed *p, size_t count, size_t merge_count, mf_error *why)
{
    p->token_capacity = max_size(count, 1);
    p->tokens = calloc(p->token_capacity, sizeof *p->tokens);
    p->types = calloc(p->token_capacity, sizeof *p->types);
    p->lefts = calloc(max_size(merge_count, 1), sizeof *p->lefts);
    p->rights = calloc(max_size(merge_count, 1), sizeof *p->rights);
    if (!p->tokens || !p->types || !p->lefts || !p->rights)
        return fail_memory(why, count * sizeof *p->tokens);
    p->tables.tokens = p->tokens;
    p->tables.types = p->types;
    p->tables.merges = p->lefts;
    p->tables.merge_rights = p->rights;
    p->tables.merge_count = merge_count;
    return MF_OK;
}

static bool is_marker(struct text_span text)
{
    static const char wide[] = "｜"; /* DeepSeek's bar */
    const size_t bar = sizeof wide - 1, length = text.length;
    if (length > 4 && memcmp(text.text, "<|", 2) == 0)
        return memcmp(text.text + length - 2, "|>", 2) == 0;
    return length > 2 * bar + 2 && text.text[0] == '<' && memcmp(text.text + 1, wide, bar) == 0 &&
           text.text[length - 1] == '>' && memcmp(text.text + length - 1 - bar, wide, bar) == 0;
}

static void read_token(struct packed *p, struct cursor *c, bool added)
{
    uint32_t id = take_u32(c, "a token");
    struct text_span text = take_text(c, "a token");
    if (c->status != MF_OK) return;
    if (id >= p->token_capacity) {
        c->status =
            fail(c->why, MF_ERR_FORMAT, "%s: token \"%.*s\" has id %u, at most %zu was expected",
                 c->path, SPAN_ARGS(text), id, p->token_capacity - 1);
        return;
    }
    if (p->types[id] && !added) {
        c->status = fail(c->why, MF_ERR_FORMAT, "%s: id %u is given twice", c->path, id);
        return;
    }
    p->tokens[id] = text;
    p->types[id] = !added ? TOKEN_NORMAL : is_marker(text) ? TOKEN_CONTROL : TOKEN_USER_DEFINED;
    p->tables.token_count = max_size(p->tables.token_count, (size_t)id + 1);
}

static void read_bin(struct packed *p, struct cursor *c)
{
    const char *magic = take(c, 4, "its header");
    uint32_t version = take_u32(c, "its header"), counts[3];
    for (size_t i = 0; i < 3; i++) counts[i] = take_u32(c, "its header");
    if (c->status == MF_OK && (memcmp(magic, "BPET", 4) != 0 || version != 1))
        c->status = fail(c->why, MF_ERR_FORMAT, "%s is no \"BPET\" of version 1", c->path);
    if (!counts_fit(c, counts)) return;
    c->status = new_tables(p, vocabulary_id_limit(left(c)), counts[1], c->why);
    for (uint32_t i = 0; i < counts[0] && c->status == MF_OK; i++) read_token(p, c, false);
    for (uint32_t i = 0; i < counts[1] && c->status == MF_OK; i++) {
        p->lefts[i] = take_text(c, "a merge");
        p->rights[i] = take_text(c, "a merge");
    }
    for (uint32_t i = 0; i < counts[2] && c->status == MF_OK; i++) read_token(p, c, true);
}

static void read_vocab(struct packed *p, struct cursor *c)
{
    uint32_t count = take_u32(c, "its header"), highest = take_u32(c, "its header");
    if (c->status != MF_OK) return;
    if (count > TOKEN_ID_LIMIT || 2 * (uint64_t)count > left(c) || highest >= TOKEN_ID_LIMIT) {
        c->status =
            fail(c->why, MF_ERR_FORMAT,
                 "%s says that it has %u tokens up to id %u, its %zu bytes do not hold them",
                 c->path, count, highest, left(c));
        return;
    }
    c->status = new_tables(p, count, 0, c->why);
    for (uint32_t id = 0; id < count && c->status == MF_OK; id++)
        p->tokens[id] = take_text(c, "a token");
    p->tables.token_count = count;
    p->tables.bytes_only = true;
}

/* ------------------------------------------------------------------------- opening */

static mf_status open_file(struct tokenizer **out, const mf_files *files, const char *path,
                           const char *pre_tokenizer, mf_error *why)
{
    char *bytes;
    size_t length;
    struct packed packed = { .tables = { .bos_id = -1, .pre_tokenizer = pre_tokenizer } };
    mf_status status = file_read_whole_new(&bytes, &length, files, path, TOKENIZER_FILE_LIMIT, why);
    if (status != MF_OK) return status;
    struct cursor cursor = { bytes, bytes + length, path, why, MF_OK };
    if (pre_tokenizer)
        read_bin(&packed, &cursor);
    else
        read_vocab(&packed, &cursor);
    status = cursor.status;
    if (status == MF_OK) status = tokenizer_from_tables_new(out, &packed.tables, path, why);
    packed_free(&packed);
    free(bytes);
    return status;
}

static mf_status look_for(char path[PATH_CAPACITY], bool *present, const mf_files *files,
                          const char *directory, const char *name, mf_error *why)
{
    mf_status status = path_join(path, PATH_CAPACITY, directory, name, why);
    return status == MF_OK ? file_probe(present, files, path, why) : status;
}

mf_status tokenizer_open_ancestors_new(struct tokenizer **out, const mf_files *files,
                                       const struct ancestors_tokenizer *packed, mf_error *why)
{
    char path[PATH_CAPACITY];
    bool whole = false, bytes_only = false;
    *out = NULL;
    mf_status status = look_for(path, &whole, files, packed->directory, "tokenizer.bin", why);
    if (status == MF_OK && !whole)
        status = look_for(path, &bytes_only, files, packed->directory, "vocab.bin", why);
    if (status != MF_OK || (!whole && !bytes_only)) return status;
    status = open_file(out, files, path, whole ? packed->pre_tokenizer : NULL, why);
    if (status == MF_OK && whole) status = tokenizer_read_config(*out, packed->config, why);
    if (status == MF_OK) return MF_OK;
    tokenizer_free(*out);
    *out = NULL;
    return status;
}
