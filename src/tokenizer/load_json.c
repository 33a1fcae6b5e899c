/* load_json.c: a tokenizer from Hugging Face's tokenizer.json.
 *
 * model.vocab and model.merges, nearly all of the file, are cut out of the text and
 * walked through (json_scan.h); what is left goes through jansson. */
#include "tokenizer/json_scan.h"

#include "base/json.h"
#include "base/status.h"

#include <stdlib.h>

struct source {
    const char *where;
    mf_error *why;
    struct text_span vocabulary, merges; /* their JSON; length 0: not there */
    json_t *root;                        /* the rest: both are null in it */
};

/* -------------------------------------------------------------- the two large fields */

static mf_status read_vocabulary(struct tokenizer *tokenizer, const struct source *source)
{
    struct json_cursor cursor = { source->vocabulary.text,
                                  source->vocabulary.text + source->vocabulary.length };
    struct byte_buffer scratch = { 0 };
    mf_status status = MF_OK;
    size_t count = 0;
    bool good = json_take(&cursor, '{');
    if (good && json_take(&cursor, '}')) return MF_OK;
    while (good && status == MF_OK) {
        struct text_span text;
        uint64_t id;
        good = json_take_string(&text, &scratch, &cursor) && json_take(&cursor, ':') &&
               json_take_count(&id, &cursor);
        if (!good) break;
        status =
            vocabulary_add(&tokenizer->vocabulary, id, text, false, source->where, source->why);
        count++;
        if (json_take(&cursor, '}')) break;
        good = json_take(&cursor, ',');
    }
    byte_buffer_free(&scratch);
    if (!good)
        return fail(source->why, MF_ERR_FORMAT,
                    "%s: model.vocab: after %zu tokens, a string and its id were expected",
                    source->where, count);
    return status;
}

/* One merge, in either spelling: "a b" or ["a", "b"]. */
static bool take_merge(struct text_span *left, struct text_span *right,
                       struct byte_buffer scratch[2], struct json_cursor *cursor)
{
    if (json_take(cursor, '['))
        return json_take_string(left, &scratch[0], cursor) && json_take(cursor, ',') &&
               json_take_string(right, &scratch[1], cursor) && json_take(cursor, ']');
    struct text_span both;
    return json_take_string(&both, &scratch[0], cursor) && tokenizer_cut_merge(left, right, both);
}

static mf_status read_merges(struct tokenizer *tokenizer, const struct source *source)
{
    struct json_cursor cursor = { source->merges.text,
                                  source->merges.text + source->merges.length };
    struct byte_buffer scratch[2] = { { 0 } };
    mf_status status = MF_OK;
    uint32_t rank = 0;
    bool good = json_take(&cursor, '[');
    if (good && json_take(&cursor, ']')) return MF_OK;
    while (good && status == MF_OK) {
        struct text_span left, right;
        good = take_merge(&left, &right, scratch, &cursor) && rank < RANK_NONE;
        if (!good) break;
        status = tokenizer_add_merge(tokenizer, left, right, rank++, source->where, source->why);
        if (json_take(&cursor, ']')) break;
        good = json_take(&cursor, ',');
    }
    byte_buffer_free(&scratch[0]);
    byte_buffer_free(&scratch[1]);
    if (!good)
        return fail(
            source->why, MF_ERR_FORMAT,
            "%s: model.merges: merge %u is neither \"left right\" nor [\"left\", \"right\"]",
            source->where, rank);
    return status;
}

/* Finds the two fields in the model, whose opening brace has been taken. */
static void find_large_fields(struct source *source, struct json_cursor *cursor)
{
    struct text_span name, value;
    while (json_next_field(&name, cursor) && json_skip_value(&value, cursor)) {
        if (json_is_name(name, "vocab")) source->vocabulary = value;
        if (json_is_name(name, "merges")) source->merges = value;
    }
}

static void find_model(struct source *source, const char *json, size_t length)
{
    struct json_cursor cursor = { json, json + length };
    struct text_span name, value;
    bool more = json_take(&cursor, '{');
    while (more && json_next_field(&name, &cursor)) {
        if (json_is_name(name, "model") && json_take(&cursor, '{')) {
            find_large_fields(source, &cursor);
            return;
        }
        more = json_skip_value(&value, &cursor);
    }
}

/* Parses `json` with the two fields replaced by null. */
static mf_status parse_rest(struct source *source, const char *json, size_t length)
{
    struct byte_buffer text = { 0 };
    const char *at = json;
    find_model(source, json, length);
    bool merges_first = source->merges.length && source->merges.text < source->vocabulary.text;
    struct text_span cuts[2] = { source->vocabulary, source->merges };
    if (merges_first) {
        cuts[0] = source->merges;
        cuts[1] = source->vocabulary;
    }
    for (int i = 0; i < 2; i++) {
        if (cuts[i].length == 0) continue;
        byte_buffer_append(&text, at, (size_t)(cuts[i].text - at));
        byte_buffer_append_text(&text, "null");
        at = cuts[i].text + cuts[i].length;
    }
    byte_buffer_append(&text, at, (size_t)(json + length - at));
    mf_status status = byte_buffer_status(&text, source->why);
    if (status == MF_OK)
        status = json_parse_new(&source->root, text.data, text.count, source->where, source->why);
    byte_buffer_free(&text);
    return status;
}

/* ------------------------------------------------------------------- small fields */

/* Fails with "WHERE: FIELD WHAT". */
static mf_status refuse(const struct source *source, const char *field, const char *what)
{
    return fail(source->why, MF_ERR_UNSUPPORTED, "%s: %s %s", source->where, field, what);
}

/* The type of an object, "" when it has none. */
static const char *type_of(const json_t *object)
{
    const char *type = json_string_value(json_object_get(object, "type"));
    return type ? type : "";
}

static mf_status refuse_type(const struct source *source, const char *field, const json_t *object)
{
    return fail(source->why, MF_ERR_UNSUPPORTED, "%s: %s is %s of type \"%.64s\", not supported",
                source->where, field, json_kind(object), type_of(object));
}

/* SentencePiece's: " " becomes U+2581. */
static bool is_space_sign(const json_t *normaliser)
{
    const char *content = json_string_value(json_object_get(normaliser, "content"));
    const json_t *pattern = json_object_get(normaliser, "pattern");
    const char *replaced = json_string_value(json_object_get(pattern, "String"));
    return strcmp(type_of(normaliser), "Replace") == 0 && content && replaced &&
           strcmp(content, SPACE_SIGN) == 0 && strcmp(replaced, " ") == 0;
}

static mf_status read_normaliser(struct tokenizer *tokenizer, const struct source *source,
                                 const json_t *normaliser, unsigned depth)
{
    if (!normaliser || json_is_null(normaliser)) return MF_OK;
    const char *type = type_of(normaliser);
    if (strcmp(type, "NFC") == 0) {
        tokenizer->nfc = true;
        return MF_OK;
    }
    if (is_space_sign(normaliser)) {
        tokenizer->spaces = tokenizer->vocabulary.spaces = true;
        return MF_OK;
    }
    const json_t *list = json_object_get(normaliser, "normalizers"), *part;
    if (strcmp(type, "Sequence") != 0 || !json_is_array(list) || depth > 4)
        return refuse_type(source, "normalizer", normaliser);
    mf_status status = MF_OK;
    size_t i;
    json_array_foreach(list, i, part)
    {
        if (status == MF_OK) status = read_normaliser(tokenizer, source, part, depth + 1);
    }
    return status;
}

/* A pattern that matches `text` and nothing else. */
static mf_status quote_pattern_new(char **out, const char *text, mf_error *why)
{
    char *quoted = malloc(2 * strlen(text) + 1);
    *out = quoted;
    if (!quoted) return fail_memory(why, 2 * strlen(text) + 1);
    for (; *text; text++) {
        if (strchr("\\^$.[]|()?*+{}&-#", *text)) *quoted++ = '\\';
        *quoted++ = *text;
    }
    *quoted = '\0';
    return MF_OK;
}

static mf_status read_split(struct tokenizer *tokenizer, const struct source *source,
                            const json_t *step)
{
    const char *behaviour = NULL, *pattern = NULL, *literal = NULL;
    bool invert = false;
    const json_t *patterns = json_object_get(step, "pattern");
    const char *where = source->where;
    mf_status status = json_maybe_text(&behaviour, step, "behavior", where, source->why);
    if (status == MF_OK) status = json_maybe_flag(&invert, step, "invert", where, source->why);
    if (status == MF_OK) status = json_maybe_text(&pattern, patterns, "Regex", where, source->why);
    if (status == MF_OK) status = json_maybe_text(&literal, patterns, "String", where, source->why);
    if (status != MF_OK) return status;
    if (!pattern && !literal) return refuse(source, "pre_tokenizer", "has a Split without pattern");

    enum split_keep keep = SPLIT_KEEP_ALL;
    if (behaviour && strcmp(behaviour, "Removed") == 0)
        keep = invert ? SPLIT_DROP_GAPS : SPLIT_DROP_MATCHES;
    else if (!behaviour || strcmp(behaviour, "Isolated") != 0)
        return refuse(source, "pre_tokenizer", "has a Split that is neither Isolated nor Removed");

    if (pattern) return splitter_add(&tokenizer->splitter, pattern, keep, true, where, source->why);
    char *quoted;
    status = quote_pattern_new(&quoted, literal, source->why);
    if (status == MF_OK)
        status = splitter_add(&tokenizer->splitter, quoted, keep, true, where, source->why);
    free(quoted);
    return status;
}

static mf_status read_digits(struct tokenizer *tokenizer, const struct source *source,
                             const json_t *step)
{
    bool individual = false;
    mf_status status =
        json_maybe_flag(&individual, step, "individual_digits", source->where, source->why);
    if (status != MF_OK) return status;
    return splitter_add(&tokenizer->splitter, individual ? split_number : "\\p{N}+", SPLIT_KEEP_ALL,
                        true, source->where, source->why);
}

static mf_status read_punctuation(struct tokenizer *tokenizer, const struct source *source,
                                  const json_t *step)
{
    const char *behaviour = "Isolated";
    mf_status status = json_maybe_text(&behaviour, step, "behavior", source->where, source->why);
    if (status != MF_OK) return status;
    bool runs = strcmp(behaviour, "Contiguous") == 0;
    if (!runs && strcmp(behaviour, "Isolated") != 0)
        return refuse(source, "pre_tokenizer",
                      "has a Punctuation that is neither Isolated nor Contiguous");
    return splitter_add(&tokenizer->splitter, runs ? split_punctuation : "[\\p{P}$+<=>^`|~]",
                        SPLIT_KEEP_ALL, true, source->where, source->why);
}

static mf_status read_byte_level(struct tokenizer *tokenizer, const struct source *source,
                                 const json_t *step)
{
    bool prefix = false, split = true;
    mf_status status =
        json_maybe_flag(&prefix, step, "add_prefix_space", source->where, source->why);
    if (status == MF_OK)
        status = json_maybe_flag(&split, step, "use_regex", source->where, source->why);
    if (status != MF_OK) return status;
    if (prefix) return refuse(source, "pre_tokenizer", "asks for add_prefix_space");
    if (!split) return MF_OK;
    return splitter_add(&tokenizer->splitter, split_gpt2, SPLIT_KEEP_ALL, true, source->where,
                        source->why);
}

/* *bytes: whether a ByteLevel has been seen; what comes after one would split its alphabet. */
static mf_status read_splits(struct tokenizer *tokenizer, bool *bytes, const struct source *source,
                             const json_t *step, unsigned depth)
{
    static const struct {
        const char *type;
        mf_status (*read)(struct tokenizer *, const struct source *, const json_t *);
    } kinds[] = { { "Split", read_split },
                  { "Digits", read_digits },
                  { "Punctuation", read_punctuation },
                  { "ByteLevel", read_byte_level } };
    const char *type = type_of(step);
    mf_status status = MF_OK;
    if (strcmp(type, "Sequence") == 0 && depth < 4) {
        const json_t *list = json_object_get(step, "pretokenizers"), *part;
        size_t i;
        if (!json_is_array(list)) return refuse_type(source, "pre_tokenizer", step);
        json_array_foreach(list, i, part)
        {
            if (status == MF_OK) status = read_splits(tokenizer, bytes, source, part, depth + 1);
        }
        return status;
    }
    if (*bytes) return refuse(source, "pre_tokenizer", "has a step after ByteLevel");
    *bytes = strcmp(type, "ByteLevel") == 0;
    for (size_t i = 0; i < COUNT_OF(kinds); i++)
        if (strcmp(type, kinds[i].type) == 0) return kinds[i].read(tokenizer, source, step);
    return refuse_type(source, "pre_tokenizer", step);
}

static mf_status read_added(struct tokenizer *tokenizer, const struct source *source,
                            const json_t *entry)
{
    uint64_t id;
    const char *where = source->where;
    struct added_token token = { 0 };
    const json_t *content = json_object_get(entry, "content");
    mf_status status = json_need_count(&id, entry, "id", 0, TOKEN_ID_LIMIT - 1, where, source->why);
    const struct {
        const char *key;
        bool *flag;
    } flags[] = { { "special", &token.special },
                  { "normalized", &token.normalised },
                  { "single_word", &token.single_word },
                  { "lstrip", &token.strip_left },
                  { "rstrip", &token.strip_right } };
    for (size_t i = 0; status == MF_OK && i < COUNT_OF(flags); i++)
        status = json_maybe_flag(flags[i].flag, entry, flags[i].key, where, source->why);
    if (status != MF_OK) return status;
    if (!json_is_string(content))
        return fail(source->why, MF_ERR_FORMAT, "%s: content of added token %llu is %s", where,
                    (unsigned long long)id, json_kind(content));
    token.text = (struct text_span){ json_string_value(content), json_string_length(content) };
    return tokenizer_add_token(tokenizer, &token, id, where, source->why);
}

/* A TemplateProcessing that puts a token before every text: its id.  Other processors add
 * nothing. */
static void read_template(struct tokenizer *tokenizer, const json_t *processor)
{
    const json_t *list = json_object_get(processor, "processors"), *part;
    size_t i;
    json_array_foreach(list, i, part)
    {
        if (strcmp(type_of(part), "TemplateProcessing") == 0) processor = part;
    }
    const json_t *first = json_array_get(json_object_get(processor, "single"), 0);
    const json_t *token = json_object_get(json_object_get(first, "SpecialToken"), "id");
    if (strcmp(type_of(processor), "TemplateProcessing") == 0 && json_is_string(token))
        tokenizer->bos = tokenizer_find(tokenizer, json_string_value(token));
}

/* What of the model is neither vocabulary nor merges. */
static mf_status read_model(struct tokenizer *tokenizer, bool *fallback,
                            const struct source *source)
{
    const json_t *model = json_object_get(source->root, "model");
    const char *type = "BPE", *prefix = "", *suffix = "";
    double dropout = 0;
    const char *where = source->where;
    mf_status status = json_maybe_text(&type, model, "type", where, source->why);
    if (status == MF_OK)
        status = json_maybe_text(&prefix, model, "continuing_subword_prefix", where, source->why);
    if (status == MF_OK)
        status = json_maybe_text(&suffix, model, "end_of_word_suffix", where, source->why);
    if (status == MF_OK) status = json_maybe_real(&dropout, model, "dropout", where, source->why);
    if (status == MF_OK)
        status =
            json_maybe_flag(&tokenizer->ignore_merges, model, "ignore_merges", where, source->why);
    if (status == MF_OK)
        status = json_maybe_flag(fallback, model, "byte_fallback", where, source->why);
    if (status != MF_OK) return status;
    if (strcmp(type, "BPE") != 0) return refuse_type(source, "model", model);
    if (*prefix || *suffix || dropout != 0)
        return refuse(source, "model",
                      "has a continuing_subword_prefix, an end_of_word_suffix or a dropout");
    if (source->vocabulary.length == 0 || source->merges.length == 0)
        return fail(source->why, MF_ERR_FORMAT, "%s: model has no %s", where,
                    source->merges.length ? "vocab" : "merges");
    return MF_OK;
}

static mf_status read_tokens(struct tokenizer *tokenizer, bool fallback,
                             const struct source *source)
{
    mf_status status = read_vocabulary(tokenizer, source);
    const json_t *added = json_object_get(source->root, "added_tokens"), *entry;
    size_t i;
    json_array_foreach(added, i, entry)
    {
        if (status == MF_OK) status = read_added(tokenizer, source, entry);
    }
    if (status == MF_OK) status = tokenizer_index(tokenizer, true, source->where, source->why);
    if (status == MF_OK) status = read_merges(tokenizer, source);
    if (status == MF_OK) tokenizer_bind_bytes(tokenizer, fallback);
    return status;
}

/* A text without spaces, which they all became the sign for, is not split at spaces. */
static bool splits_nothing(const json_t *step)
{
    const char *literal =
        json_string_value(json_object_get(json_object_get(step, "pattern"), "String"));
    return !step || json_is_null(step) ||
           (strcmp(type_of(step), "Split") == 0 && literal && strcmp(literal, " ") == 0);
}

static mf_status read_all(struct tokenizer *tokenizer, const struct source *source)
{
    bool bytes = false, fallback = false;
    const json_t *splits = json_object_get(source->root, "pre_tokenizer");
    mf_status status = read_model(tokenizer, &fallback, source);
    if (status == MF_OK)
        status = read_normaliser(tokenizer, source, json_object_get(source->root, "normalizer"), 0);
    if (status == MF_OK && tokenizer->spaces && tokenizer->nfc)
        status = refuse(source, "normalizer", "has NFC and a sign for spaces");
    if (status == MF_OK && !(tokenizer->spaces && splits_nothing(splits)))
        status = read_splits(tokenizer, &bytes, source, splits, 0);
    if (status == MF_OK && bytes == tokenizer->spaces)
        status = refuse(source, "pre_tokenizer",
                        bytes ? "has a ByteLevel beside a sign for spaces"
                              : "has no ByteLevel: only byte-level BPE is supported");
    if (status == MF_OK) status = read_tokens(tokenizer, fallback, source);
    if (status == MF_OK) read_template(tokenizer, json_object_get(source->root, "post_processor"));
    return status;
}

mf_status tokenizer_parse_new(struct tokenizer **out, const char *json, size_t length,
                              const char *where, mf_error *why)
{
    struct source source = { .where = where, .why = why };
    struct tokenizer *tokenizer = NULL;
    *out = NULL;
    mf_status status = tokenizer_blank_new(&tokenizer, why);
    if (status == MF_OK) tokenizer->vocabulary.id_limit = vocabulary_id_limit(length);
    if (status == MF_OK) status = parse_rest(&source, json, length);
    if (status == MF_OK) status = read_all(tokenizer, &source);
    if (status == MF_OK) {
        *out = tokenizer;
        tokenizer = NULL; /* the caller's now */
    }
    json_decref(source.root);
    tokenizer_free(tokenizer);
    return status;
}
