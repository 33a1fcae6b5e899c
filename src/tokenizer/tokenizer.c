#include "tokenizer/internal.h"

#include "base/status.h"

#include <stdio.h>
#include <stdlib.h>

void token_list_free(struct token_list *list)
{
    free(list->ids);
    *list = (struct token_list){ 0 };
}

mf_status token_list_append(struct token_list *list, int32_t id, mf_error *why)
{
    mf_status status = ARRAY_RESERVE(list->ids, list->capacity, list->count + 1, NULL, why);
    if (status == MF_OK) list->ids[list->count++] = id;
    return status;
}

/* ------------------------------------------------------------------- building */

mf_status tokenizer_blank_new(struct tokenizer **out, mf_error *why)
{
    *out = calloc(1, sizeof **out);
    if (!*out) return fail_memory(why, sizeof **out);
    (*out)->bos = -1;
    return MF_OK;
}

void tokenizer_free(struct tokenizer *tokenizer)
{
    if (!tokenizer) return;
    vocabulary_free(&tokenizer->vocabulary);
    added_set_free(&tokenizer->added);
    added_set_free(&tokenizer->added_normalised);
    splitter_free(&tokenizer->splitter);
    merge_table_free(&tokenizer->merges);
    free(tokenizer->whole);
    free(tokenizer);
}

static struct text_span entry_text(const struct vocabulary *vocabulary,
                                   const struct token_entry *entry)
{
    return (struct text_span){ vocabulary->blob.data + entry->text, entry->text_length };
}

static bool spans_equal(struct text_span a, struct text_span b)
{
    return a.length == b.length && memcmp(a.text, b.text, a.length) == 0;
}

mf_status tokenizer_add_token(struct tokenizer *tokenizer, const struct added_token *token,
                              uint64_t id, const char *where, mf_error *why)
{
    struct vocabulary *vocabulary = &tokenizer->vocabulary;
    if (token->text.length == 0 || token->text.length > ADDED_TEXT_LIMIT)
        return fail(why, MF_ERR_FORMAT, "%s: added token %llu has %zu bytes, 1 to %d are accepted",
                    where, (unsigned long long)id, token->text.length, ADDED_TEXT_LIMIT);
    /* The vocabulary may list it too: gpt-2's has <|endoftext|>. */
    bool listed = id < vocabulary->size && vocabulary->entries[id].flags & TOKEN_PRESENT &&
                  spans_equal(entry_text(vocabulary, &vocabulary->entries[id]), token->text);
    if (!listed) {
        mf_status status = vocabulary_add(vocabulary, id, token->text, true, where, why);
        if (status != MF_OK) return status;
    }
    struct token_entry *entry = &vocabulary->entries[id];
    if (entry->flags & TOKEN_ADDED)
        return fail(why, MF_ERR_FORMAT, "%s: added token %llu stands twice", where,
                    (unsigned long long)id);
    entry->flags |= TOKEN_ADDED | (token->special ? TOKEN_SPECIAL : 0);
    if (!vocabulary->spaces) {
        entry->bytes = entry->text;
        entry->bytes_length = entry->text_length;
    }
    vocabulary->longest = max_size(vocabulary->longest, entry->bytes_length);

    struct added_token copy = *token;
    copy.id = (int32_t)id;
    /* Without a normaliser the two are the same, and one search does. */
    bool late = token->normalised && (tokenizer->nfc || tokenizer->spaces);
    return added_set_add(late ? &tokenizer->added_normalised : &tokenizer->added, copy, why);
}

/* The vocabulary's memory moves while it grows; from here on it stays. */
static void settle_added(struct added_set *set, const struct vocabulary *vocabulary,
                         bool normalised)
{
    for (size_t i = 0; i < set->count; i++) {
        struct added_token *token = &set->tokens[i];
        const struct token_entry *entry = &vocabulary->entries[token->id];
        token->text = entry_text(vocabulary, entry);
        if (normalised && vocabulary->spaces)
            token->text =
                (struct text_span){ vocabulary->blob.data + entry->bytes, entry->bytes_length };
    }
    added_set_sort(set);
}

mf_status tokenizer_index(struct tokenizer *tokenizer, bool unique, const char *where,
                          mf_error *why)
{
    struct vocabulary *vocabulary = &tokenizer->vocabulary;
    if (vocabulary->size == 0) return fail(why, MF_ERR_FORMAT, "%s: there are no tokens", where);
    tokenizer->whole = calloc(vocabulary->size, sizeof *tokenizer->whole);
    if (!tokenizer->whole) return fail_memory(why, vocabulary->size);
    settle_added(&tokenizer->added, vocabulary, false);
    settle_added(&tokenizer->added_normalised, vocabulary, true);
    mf_status status = merge_table_reserve(&tokenizer->merges, vocabulary->size, why);
    if (status != MF_OK) return status;
    return vocabulary_index(vocabulary, unique, where, why);
}

void tokenizer_bind_bytes(struct tokenizer *tokenizer, bool fallback)
{
    struct vocabulary *vocabulary = &tokenizer->vocabulary;
    for (unsigned byte = 0; byte < 256; byte++) {
        char text[8] = { (char)byte };
        int32_t id = vocabulary_find(vocabulary, text, 1), named = -1;
        if ((id < 0 && fallback) || tokenizer->spaces) {
            int length = snprintf(text, sizeof text, "<0x%02X>", byte);
            named = vocabulary_find(vocabulary, text, (size_t)length);
            if (named >= 0) vocabulary_make_byte(vocabulary, named, (uint8_t)byte);
        }
        tokenizer->byte_ids[byte] = id >= 0 ? id : named;
    }
}

bool tokenizer_cut_merge(struct text_span *left, struct text_span *right, struct text_span text)
{
    if (text.length < 3) return false;
    const char *space = memchr(text.text + 1, ' ', text.length - 1);
    if (!space) return false;
    *left = (struct text_span){ text.text, (size_t)(space - text.text) };
    *right = (struct text_span){ space + 1, text.length - left->length - 1 };
    return right->length > 0;
}

/* The token that a byte-level string names; `scratch` receives its bytes. */
static int32_t find_text(const struct vocabulary *vocabulary, char *scratch, size_t *length,
                         struct text_span text)
{
    vocabulary_decode(vocabulary, scratch, length, text);
    return vocabulary_find(vocabulary, scratch, *length);
}

/* Merges mostly stand in the order of the tokens that they make, so the next one is tried
 * before the search. */
static int32_t find_result(const struct tokenizer *tokenizer, const char *bytes, size_t length)
{
    const struct vocabulary *vocabulary = &tokenizer->vocabulary;
    int32_t next = tokenizer->last_result + 1;
    const struct token_entry *entry = vocabulary_entry(vocabulary, next);
    bool usable = entry && !(entry->flags & (TOKEN_ADDED | TOKEN_SPECIAL | TOKEN_HIDDEN));
    if (usable && entry->bytes_length == length &&
        memcmp(vocabulary->blob.data + entry->bytes, bytes, length) == 0)
        return next;
    return vocabulary_find(vocabulary, bytes, length);
}

mf_status tokenizer_add_merge(struct tokenizer *tokenizer, struct text_span left,
                              struct text_span right, uint32_t rank, const char *where,
                              mf_error *why)
{
    const struct vocabulary *vocabulary = &tokenizer->vocabulary;
    char local[512], *bytes = local;
    size_t left_length = 0, right_length = 0;
    if (left.length > TOKEN_TEXT_LIMIT || right.length > TOKEN_TEXT_LIMIT)
        return fail(why, MF_ERR_FORMAT, "%s: merge %u has a part of more than %d bytes", where,
                    rank, TOKEN_TEXT_LIMIT);
    if (left.length + right.length > sizeof local) bytes = malloc(left.length + right.length);
    if (!bytes) return fail_memory(why, left.length + right.length);

    int32_t left_id = find_text(vocabulary, bytes, &left_length, left);
    int32_t right_id = find_text(vocabulary, bytes + left_length, &right_length, right);
    int32_t result = find_result(tokenizer, bytes, left_length + right_length);
    if (bytes != local) free(bytes);
    if (left_id < 0 || right_id < 0 || result < 0)
        return fail(why, MF_ERR_FORMAT,
                    "%s: merge %u, \"%.*s\" + \"%.*s\", has a part or a result that is no token",
                    where, rank, SPAN_ARGS(left), SPAN_ARGS(right));
    tokenizer->last_result = result;
    struct merge merge = { (uint32_t)left_id, (uint32_t)right_id, rank, (uint32_t)result };
    return merge_table_put(&tokenizer->merges, merge, why);
}

/* ------------------------------------------------------------------- encoding */

struct encoding {
    const struct tokenizer *tokenizer;
    struct token_list *out;
    enum special_mode mode;
    const char *text;              /* the whole of it */
    struct content_ranges content; /* of it: there no added token is looked for */
    bool stretch_has_content;      /* of the stretch whose normal form is in `normalised` */
    struct bpe_scratch scratch;
    struct byte_buffer normalised;
};

static mf_status encode_piece(void *context, const char *piece, size_t length, mf_error *why)
{
    struct encoding *encoding = context;
    return bpe_encode_piece(encoding->out, &encoding->scratch, encoding->tokenizer,
                            (struct text_span){ piece, length }, why);
}

typedef mf_status (*stretch_function)(struct encoding *encoding, struct text_span text,
                                      mf_error *why);

/* Of a stretch of the text, or of its normal form, in which offsets are others: there all of it
 * counts as content if any of the stretch is. */
static struct content_ranges content_within(struct encoding *encoding, struct text_span text)
{
    static const mf_range everything = { 0, SIZE_MAX };
    struct content_ranges found = encoding->content;
    if (text.text != encoding->normalised.data) {
        found.origin = (size_t)(text.text - encoding->text);
        return found;
    }
    return encoding->stretch_has_content ? (struct content_ranges){ &everything, 1, 0 }
                                         : (struct content_ranges){ 0 };
}

/* Cuts the added tokens of `set` out of `text`; what lies between them goes to `between`. */
static mf_status encode_around(struct encoding *encoding, const struct added_set *set,
                               struct text_span text, stretch_function between, mf_error *why)
{
    mf_status status = MF_OK;
    struct added_search search = { .text = text, .mode = encoding->mode };
    struct added_match match;
    size_t at = 0;
    if (encoding->content.count > 0) search.content = content_within(encoding, text);
    while (status == MF_OK && added_set_next(&match, set, &search, at)) {
        if (match.begin > at)
            status = between(encoding, (struct text_span){ text.text + at, match.begin - at }, why);
        if (status == MF_OK) status = token_list_append(encoding->out, match.id, why);
        at = match.end;
    }
    if (status == MF_OK && at < text.length)
        status = between(encoding, (struct text_span){ text.text + at, text.length - at }, why);
    return status;
}

static mf_status encode_pieces(struct encoding *encoding, struct text_span text, mf_error *why)
{
    return splitter_run(&encoding->tokenizer->splitter, text.text, text.length, encode_piece,
                        encoding, why);
}

static bool is_normal(const struct tokenizer *tokenizer, struct text_span text)
{
    if (tokenizer->spaces) return !text_has_space_sign(text.text, text.length);
    return !tokenizer->nfc || text_is_nfc(text.text, text.length);
}

static mf_status append_normal(struct byte_buffer *out, const struct tokenizer *tokenizer,
                               struct text_span text, mf_error *why)
{
    if (!tokenizer->spaces) return text_append_nfc(out, text.text, text.length, why);
    if (!byte_buffer_reserve(out, text.length)) return byte_buffer_status(out, why);
    out->count += text_replace_space_signs(out->data + out->count, text.text, text.length);
    return MF_OK;
}

static mf_status encode_raw(struct encoding *encoding, struct text_span text, mf_error *why)
{
    if (!is_normal(encoding->tokenizer, text)) {
        size_t from = (size_t)(text.text - encoding->text);
        encoding->stretch_has_content =
            content_begin(&encoding->content, from) < from + text.length;
        encoding->normalised.count = 0;
        mf_status status = append_normal(&encoding->normalised, encoding->tokenizer, text, why);
        if (status != MF_OK) return status;
        text = (struct text_span){ encoding->normalised.data, encoding->normalised.count };
    }
    return encode_around(encoding, &encoding->tokenizer->added_normalised, text, encode_pieces,
                         why);
}

static mf_status encode(struct encoding *encoding, struct text_span text, mf_error *why)
{
    if (encoding->tokenizer->decode_only)
        return fail(why, MF_ERR_UNSUPPORTED, "this vocabulary can only decode: it has no merges");
    if (text.length > TEXT_LIMIT)
        return fail(why, MF_ERR_ARGUMENT, "the text has %zu bytes, at most %d are accepted",
                    text.length, TEXT_LIMIT);
    size_t count_before = encoding->out->count;
    encoding->text = text.text;
    mf_status status = encode_around(encoding, &encoding->tokenizer->added, text, encode_raw, why);
    if (status != MF_OK) encoding->out->count = count_before;
    bpe_scratch_free(&encoding->scratch);
    byte_buffer_free(&encoding->normalised);
    return status;
}

mf_status tokenizer_encode(struct token_list *out, const struct tokenizer *tokenizer,
                           const char *text, size_t length, enum special_mode mode, mf_error *why)
{
    struct encoding encoding = { .tokenizer = tokenizer, .out = out, .mode = mode };
    return encode(&encoding, (struct text_span){ text, length }, why);
}

mf_status tokenizer_encode_marked(struct token_list *out, const struct tokenizer *tokenizer,
                                  struct text_span text, const mf_range *content,
                                  size_t content_count, mf_error *why)
{
    struct encoding encoding = { .tokenizer = tokenizer,
                                 .out = out,
                                 .mode = SPECIAL_PARSE,
                                 .content = { content, content_count, 0 } };
    return encode(&encoding, text, why);
}

/* --------------------------------------------------------------------- tokens */

int32_t tokenizer_bos(const struct tokenizer *tokenizer)
{
    return tokenizer->bos;
}

const char *tokenizer_token_bytes(const struct tokenizer *tokenizer, int32_t id, size_t *length)
{
    const struct token_entry *entry = vocabulary_entry(&tokenizer->vocabulary, id);
    *length = entry ? entry->bytes_length : 0;
    return entry ? tokenizer->vocabulary.blob.data + entry->bytes : NULL;
}

const char *tokenizer_token_text(const struct tokenizer *tokenizer, int32_t id)
{
    const struct token_entry *entry = vocabulary_entry(&tokenizer->vocabulary, id);
    return entry ? tokenizer->vocabulary.blob.data + entry->text : NULL;
}

bool tokenizer_is_special(const struct tokenizer *tokenizer, int32_t id)
{
    const struct token_entry *entry = vocabulary_entry(&tokenizer->vocabulary, id);
    return entry && entry->flags & TOKEN_SPECIAL;
}

int32_t tokenizer_find(const struct tokenizer *tokenizer, const char *token)
{
    struct text_span text = { token, strlen(token) };
    int32_t id = added_set_find(&tokenizer->added, text);
    if (id < 0) id = added_set_find(&tokenizer->added_normalised, text);
    if (id >= 0 || text.length == 0 || text.length > TOKEN_TEXT_LIMIT) return id;

    char *bytes = malloc(text.length);
    size_t length;
    if (!bytes) return -1;
    id = find_text(&tokenizer->vocabulary, bytes, &length, text);
    free(bytes);
    /* Bytes are found; the text must be the same too ("é" is no way to write "Ã©"). */
    const struct token_entry *entry = vocabulary_entry(&tokenizer->vocabulary, id);
    return entry && spans_equal(entry_text(&tokenizer->vocabulary, entry), text) ? id : -1;
}

size_t tokenizer_size(const struct tokenizer *tokenizer)
{
    return tokenizer->vocabulary.size;
}

size_t token_stream_capacity(const struct tokenizer *tokenizer)
{
    return tokenizer->vocabulary.longest + sizeof((struct token_stream *)0)->held;
}
