/* tables.c: a tokenizer from arrays of tokens and merges, as a GGUF has them.
 *
 * The pre-tokenizer is only named there; what the names mean is this table.  Models whose
 * published tokenizer normalises do so here too, though the file does not say it. */
#include "tokenizer/internal.h"

#include "base/status.h"

#include <stdlib.h>

/* Letters of the scripts that have case, as DeepSeek LLM lists them. */
/* clang-format off */
static const char deepseek_letters[] =
    "\\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-Ֆ"
    "Ⴀ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-ώᾀ-ᾴᾶ-ᾼιῂ-ῄῆ-ῌ"
    "ῐ-ΐῖ-Ίῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤΩℨK-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛ"
    "Ꜣ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃]+";
/* clang-format on */
#define CJK_AND_HANGUL "[一-龥ࠀ-一가-퟿]+"
#define NEWLINES       "[\\r\\n]"

enum { PATTERNS_MAX = 6 };

static const struct pre_tokenizer {
    const char *name; /* of tokenizer.ggml.pre */
    const char *patterns[PATTERNS_MAX];
    bool nfc;
    bool ignore_merges;
} pre_tokenizers[] = {
    { "gpt-2", { split_gpt2 }, false, false },
    { "gpt2", { split_gpt2 }, false, false },
    { "mpt", { split_gpt2 }, true, false },
    { "starcoder", { split_number, split_gpt2 }, false, false },
    { "refact", { split_number, split_gpt2 }, false, false },
    { "falcon", { split_punctuation, split_gpt2, "[0-9][0-9][0-9]" }, false, false },
    { "qwen2", { split_qwen2 }, true, false },
    { "deepseek-r1-qwen", { split_qwen2 }, true, false },
    { "qwen35", { split_qwen35 }, true, false },
    { "llama3", { split_llama3 }, false, true },
    { "llama-v3", { split_llama3 }, false, true },
    { "llama-bpe", { split_llama3 }, false, true },
    { "glm4", { split_llama3 }, false, false },
    { "chatglm-bpe", { split_llama3 }, false, false },
    { "minimax-m2", { split_gpt4o }, false, false },
    { "gpt-4o", { split_gpt4o }, false, false },
    { "kimi-k2", { split_kimi }, false, true },
    { "deepseek-v3", { split_number3, split_cjk, split_deepseek_v3 }, false, false },
    { "deepseek-llm",
      { NEWLINES, deepseek_letters, "\\s?[!-/:-~！-／：-～‘-‟　-。]+", "\\s+$", CJK_AND_HANGUL,
        split_number },
      false,
      false },
    { "deepseek-coder",
      { NEWLINES, "\\s?\\p{L}+", "\\s?\\p{P}+", CJK_AND_HANGUL, split_number },
      false,
      false },
    { "gemma4", { NULL }, false, false }, /* not split: characters, U+2581 is a space */
};

static mf_status use_pre_tokenizer(struct tokenizer *tokenizer, const char *name, const char *where,
                                   mf_error *why)
{
    const struct pre_tokenizer *found = NULL;
    for (size_t i = 0; name && i < COUNT_OF(pre_tokenizers); i++)
        if (strcmp(pre_tokenizers[i].name, name) == 0) found = &pre_tokenizers[i];
    if (!found)
        return fail(why, MF_ERR_UNSUPPORTED, "%s: the pre-tokenizer \"%.64s\" is not supported",
                    where, name ? name : "");
    tokenizer->nfc = found->nfc;
    tokenizer->ignore_merges = found->ignore_merges;
    tokenizer->spaces = tokenizer->vocabulary.spaces = !found->patterns[0];
    mf_status status = MF_OK;
    for (size_t i = 0; status == MF_OK && i < PATTERNS_MAX && found->patterns[i]; i++)
        status = splitter_add(&tokenizer->splitter, found->patterns[i], SPLIT_KEEP_ALL, true, where,
                              why);
    return status;
}

/* Lines of which no merge makes a token: they are found in the text, as tokenizer.json has it. */
static bool is_newlines(struct text_span text)
{
    size_t count = 0;
    while (count < text.length && text.text[count] == '\n') count++;
    return count > 1 && count == text.length;
}

static mf_status add_token(struct tokenizer *tokenizer, uint64_t id, struct text_span text,
                           int32_t type, const char *where, mf_error *why)
{
    if (tokenizer->spaces && type == TOKEN_NORMAL && is_newlines(text)) type = TOKEN_USER_DEFINED;
    if (type == TOKEN_CONTROL || type == TOKEN_USER_DEFINED) {
        struct added_token token = { .text = text, .special = type == TOKEN_CONTROL };
        return tokenizer_add_token(tokenizer, &token, id, where, why);
    }
    mf_status status = vocabulary_add(&tokenizer->vocabulary, id, text, false, where, why);
    if (status == MF_OK && type == TOKEN_UNUSED)
        tokenizer->vocabulary.entries[id].flags |= TOKEN_HIDDEN;
    return status;
}

static mf_status add_tokens(struct tokenizer *tokenizer, const struct tokenizer_tables *tables,
                            const char *where, mf_error *why)
{
    mf_status status = MF_OK;
    bool bytes = false;
    for (size_t id = 0; status == MF_OK && id < tables->token_count; id++) {
        int32_t type = tables->types ? tables->types[id] : TOKEN_NORMAL;
        if (tables->tokens[id].length == 0) continue;
        status = add_token(tokenizer, id, tables->tokens[id], type, where, why);
        bytes |= type == TOKEN_BYTE;
    }
    if (status == MF_OK) status = tokenizer_index(tokenizer, false, where, why);
    if (status == MF_OK) tokenizer_bind_bytes(tokenizer, bytes);
    return status;
}

static mf_status add_merges(struct tokenizer *tokenizer, const struct tokenizer_tables *tables,
                            const char *where, mf_error *why)
{
    mf_status status = MF_OK;
    if (tables->merge_count >= RANK_NONE)
        return fail(why, MF_ERR_FORMAT, "%s: there are %zu merges", where, tables->merge_count);
    for (size_t i = 0; status == MF_OK && i < tables->merge_count; i++) {
        struct text_span left = tables->merges[i], right;
        if (tables->merge_rights)
            right = tables->merge_rights[i];
        else if (!tokenizer_cut_merge(&left, &right, tables->merges[i]))
            return fail(why, MF_ERR_FORMAT, "%s: merge %zu, \"%.*s\", is not \"left right\"", where,
                        i, SPAN_ARGS(tables->merges[i]));
        status = tokenizer_add_merge(tokenizer, left, right, (uint32_t)i, where, why);
    }
    return status;
}

/* vocab.bin: bytes as they are, decoding only. */
static mf_status add_byte_tokens(struct tokenizer *tokenizer, const struct tokenizer_tables *tables,
                                 const char *where, mf_error *why)
{
    struct byte_buffer text = { 0 };
    mf_status status = MF_OK;
    for (size_t id = 0; status == MF_OK && id < tables->token_count; id++) {
        if (tables->tokens[id].length == 0) continue;
        text.count = 0;
        status = byte_level_append(&text, tables->tokens[id], why);
        if (status == MF_OK)
            status = vocabulary_add(&tokenizer->vocabulary, id,
                                    (struct text_span){ text.data, text.count }, false, where, why);
    }
    byte_buffer_free(&text);
    tokenizer->decode_only = true;
    return status == MF_OK ? tokenizer_index(tokenizer, false, where, why) : status;
}

static mf_status fill(struct tokenizer *tokenizer, const struct tokenizer_tables *tables,
                      const char *where, mf_error *why)
{
    if (tables->bytes_only) return add_byte_tokens(tokenizer, tables, where, why);
    mf_status status = use_pre_tokenizer(tokenizer, tables->pre_tokenizer, where, why);
    if (status == MF_OK) status = add_tokens(tokenizer, tables, where, why);
    if (status == MF_OK) status = add_merges(tokenizer, tables, where, why);
    return status;
}

mf_status tokenizer_from_tables_new(struct tokenizer **out, const struct tokenizer_tables *tables,
                                    const char *where, mf_error *why)
{
    struct tokenizer *tokenizer;
    *out = NULL;
    mf_status status = tokenizer_blank_new(&tokenizer, why);
    if (status == MF_OK) status = fill(tokenizer, tables, where, why);
    if (status == MF_OK && tables->add_bos) {
        tokenizer->bos = tables->bos_id;
        if (!vocabulary_entry(&tokenizer->vocabulary, tables->bos_id))
            status =
                fail(why, MF_ERR_MISMATCH, "%s: a BOS token is to be added, but %d is no token",
                     where, tables->bos_id);
    }
    if (status == MF_OK) {
        *out = tokenizer;
        tokenizer = NULL; /* the caller's now */
    }
    tokenizer_free(tokenizer);
    return status;
}
