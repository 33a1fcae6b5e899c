/* tokenizer_files: the sources of a tokenizer, right and wrong. */
#include "support/byte_writer.h"
#include "support/test.h"
#include "support/failing_files.h"
#include "support/memory_files.h"
#include "support/one_call.h"
#include "support/small_tokenizer.h"
#include "support/token_vectors.h"

#include "base/file.h"
#include "tokenizer/tokenizer.h"

#include <stdio.h>
#include <stdlib.h>

static mf_error why;

static void must(mf_status status)
{
    if (status != MF_OK) fail_msg("%s (%s)", why.text, why.origin);
}

/* -------------------------------------------------------------------- bad input */

#define MODEL "'model':{'type':'BPE','vocab':{'a':0,'b':1,'ab':2},'merges':['a b']}"
static const struct {
    const char *json, *says;
} wrong_files[] = {
    { "", "not valid JSON" },
    { "{", "not valid JSON" },
    { "[]", "model has no" },
    { "{}", "model has no" },
    { "{" MODEL "}", "pre_tokenizer" },
    { "{" MODEL ",'pre_tokenizer':{'type':'Metaspace'}}", "Metaspace" },
    { "{" MODEL ",'pre_tokenizer':{'type':'Digits'}}", "no ByteLevel" },
    { "{" MODEL ",'pre_tokenizer':{'type':'ByteLevel','add_prefix_space':true}}",
      "add_prefix_space" },
    { "{" MODEL ",'pre_tokenizer':{'type':'Sequence','pretokenizers':["
      "{'type':'ByteLevel','use_regex':false},{'type':'Digits'}]}}",
      "after ByteLevel" },
    { "{" MODEL ",'pre_tokenizer':{'type':'Split','pattern':{'Regex':'a'},"
      "'behavior':'MergedWithNext'}}",
      "neither Isolated nor Removed" },
    { "{" MODEL ",'pre_tokenizer':{'type':'Split','behavior':'Isolated'}}", "pattern" },
    { "{" MODEL ",'pre_tokenizer':{'type':'Split','pattern':{'Regex':'(a'},"
      "'behavior':'Isolated'}}",
      "(a" },
    { "{" MODEL "," BYTE_LEVEL ",'normalizer':{'type':'NFKC'}}", "NFKC" },
    { "{" MODEL "," BYTE_LEVEL ",'normalizer':{'type':'Sequence','normalizers':"
      "[{'type':'NFC'},{'type':'Lowercase'}]}}",
      "Lowercase" },
    { "{" BYTE_LEVEL ",'model':{'type':'Unigram','vocab':{},'merges':[]}}", "Unigram" },
    { "{" BYTE_LEVEL ",'model':{'type':5,'vocab':{},'merges':[]}}", "type" },
    { "{" BYTE_LEVEL ",'model':{'dropout':0.1,'vocab':{},'merges':[]}}", "dropout" },
    { "{" BYTE_LEVEL ",'model':{'end_of_word_suffix':'</w>','vocab':{},'merges':[]}}",
      "end_of_word_suffix" },
    { "{" BYTE_LEVEL ",'model':{'merges':[]}}", "no vocab" },
    { "{" BYTE_LEVEL ",'model':{'vocab':{'a':0}}}", "no merges" },
    { "{" BYTE_LEVEL ",'model':{'vocab':{},'merges':[]}}", "no tokens" },
    { "{" BYTE_LEVEL ",'model':{'vocab':[],'merges':[]}}", "model.vocab" },
    { "{" BYTE_LEVEL ",'model':{'vocab':{'a':-1},'merges':[]}}", "model.vocab" },
    { "{" BYTE_LEVEL ",'model':{'vocab':{'a':0,},'merges':[]}}", "after 1 tokens" },
    { "{" BYTE_LEVEL ",'model':{'vocab':{'a':0.5},'merges':[]}}", "model.vocab" },
    { "{" BYTE_LEVEL ",'model':{'vocab':{'\\ud800':0},'merges':[]}}", "model.vocab" },
    { "{" BYTE_LEVEL ",'model':{'vocab':{'a':0,'b':0},'merges':[]}}", "id 0 is given to" },
    { "{" BYTE_LEVEL ",'model':{'vocab':{'a':0,'a':1},'merges':[]}}", "stands twice" },
    { "{" BYTE_LEVEL ",'model':{'vocab':{'a':4194304},'merges':[]}}", "4194304" },
    { "{" BYTE_LEVEL ",'model':{'vocab':{'a':9999},'merges':[]}}", "has id 9999, at most 4" },
    { "{" BYTE_LEVEL ",'model':{'vocab':{'a':99999999999999999999},'merges':[]}}", "vocab" },
    { "{" BYTE_LEVEL ",'model':{'vocab':{'a':0},'merges':['a b']}}", "\"a\" + \"b\"" },
    { "{" BYTE_LEVEL ",'model':{'vocab':{'a':0},'merges':['a']}}", "merge 0" },
    { "{" BYTE_LEVEL ",'model':{'vocab':{'a':0},'merges':[['a']]}}", "merge 0" },
    { "{" BYTE_LEVEL ",'model':{'vocab':{'a':0},'merges':[['a','a','a']]}}", "merge 0" },
    { "{" BYTE_LEVEL ",'model':{'vocab':{'a':0},'merges':{}}}", "merge 0" },
    { "{" MODEL "," BYTE_LEVEL ",'added_tokens':[{'id':0,'content':'x'}]}", "id 0 is given" },
    { "{" MODEL "," BYTE_LEVEL ",'added_tokens':[{'content':'x'}]}", "id is missing" },
    { "{" MODEL "," BYTE_LEVEL ",'added_tokens':[{'id':5,'content':''}]}", "added token 5" },
    { "{" MODEL "," BYTE_LEVEL ",'added_tokens':[{'id':5,'content':7}]}", "added token 5" },
    { "{" MODEL "," BYTE_LEVEL ",'added_tokens':[{'id':5,'content':'x','special':1}]}", "special" },
    { "{" MODEL "," BYTE_LEVEL ",'added_tokens':[{'id':5,'content':'x'},"
      "{'id':5,'content':'x'}]}",
      "stands twice" },
};
#undef MODEL

static void wrong_files_get_a_sentence(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(wrong_files); i++) {
        struct tokenizer *tokenizer;
        const char *json = wrong_files[i].json, *says = wrong_files[i].says;
        mf_status status = small_tokenizer_try(&tokenizer, json, &why);
        assert_null(tokenizer);
        if (status == MF_OK || !strstr(why.text, says) || !strstr(why.text, "the file"))
            fail_msg("%s: %s says \"%s\", nothing of \"%s\"", json, mf_status_name(status),
                     why.text, says);
    }
}

/* A file that is cut off anywhere is refused, and nothing is left behind. */
static void a_cut_file_is_refused(void **state)
{
    (void)state;
    const char *source = getenv("MOEFLUX_SOURCE");
    char path[PATH_CAPACITY];
    size_t length;
    snprintf(path, sizeof path, "%s/tests/fixtures/tokenizer/tokenizer.json",
             source ? source : ".");
    char *json = vectors_read(path, &length);
    while (length > 0 && json[length - 1] != '}') length--;
    for (size_t cut = 0; cut < length; cut += cut < 500 ? 1 : 997) {
        struct tokenizer *tokenizer;
        assert_int_not_equal(tokenizer_parse_new(&tokenizer, json, cut, "cut", &why), MF_OK);
        assert_null(tokenizer);
    }
    free(json);
}

/* ------------------------------------------------------------------ other sources */

static void a_directory_may_ask_for_bos(void **state)
{
    (void)state;
    static const char plain[] = "{\"pre_tokenizer\":{\"type\":\"ByteLevel\"},\"added_tokens\":["
                                "{\"id\":1,\"content\":\"<s>\",\"special\":true}],"
                                "\"model\":{\"vocab\":{\"a\":0},\"merges\":[]}%s}";
    static const char template[] =
        ",\"post_processor\":{\"type\":\"Sequence\",\"processors\":[{\"type\":\"ByteLevel\"},"
        "{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"<s>\"}}]}]}";
    static const struct {
        const char *more, *config;
        int32_t bos;
        mf_status status;
    } cases[] = {
        { "", NULL, -1, MF_OK },
        { template, NULL, 1, MF_OK },
        { template, "{}", 1, MF_OK },
        { template, "{\"add_bos_token\":false}", -1, MF_OK },
        { "", "{\"add_bos_token\":true,\"bos_token\":\"<s>\"}", 1, MF_OK },
        { "", "{\"add_bos_token\":true,\"bos_token\":{\"content\":\"<s>\"}}", 1, MF_OK },
        { "", "{\"add_bos_token\":false,\"bos_token\":\"<s>\"}", -1, MF_OK },
        { "", "{\"add_bos_token\":null,\"bos_token\":\"<s>\"}", -1, MF_OK },
        { "", "{\"add_bos_token\":true,\"bos_token\":\"<z>\"}", -1, MF_ERR_MISMATCH },
        { "", "{\"add_bos_token\":true}", -1, MF_ERR_MISMATCH },
        { "", "{\"add_bos_token\":1}", -1, MF_ERR_FORMAT },
        { "", "{", -1, MF_ERR_FORMAT },
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct memory_files files;
        struct tokenizer *tokenizer;
        char json[1024];
        snprintf(json, sizeof json, plain, cases[i].more);
        memory_files_init(&files);
        memory_files_put(&files, "m/tokenizer.json", json, strlen(json));
        if (cases[i].config)
            memory_files_put(&files, "m/tokenizer_config.json", cases[i].config,
                             strlen(cases[i].config));
        mf_status status = tokenizer_open_new(&tokenizer, &files.files, "m", &why);
        assert_int_equal(status, cases[i].status);
        if (status == MF_OK) assert_int_equal(tokenizer_bos(tokenizer), cases[i].bos);
        tokenizer_free(tokenizer);
        assert_int_equal(files.open_count, 0);
    }
}

/* tiktoken.model: "ab" is 256, "abc" 257 and "bc" 258, so that "abc" is made from "ab". */
static size_t write_ranks(char *out, size_t capacity)
{
    static const char letters[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    size_t length = 0;
    for (unsigned byte = 0; byte < 256; byte++)
        length += (size_t)snprintf(out + length, capacity - length, "%c%c== %u\n",
                                   letters[byte >> 2], letters[(byte & 3) << 4], byte);
    length += (size_t)snprintf(out + length, capacity - length,
                               "YWI= 256\nYWJj 257\nYmM= 258\nIGE= 259\neHl6 260\n");
    return length;
}

static void kimi_vocabulary_uses_ranks(void **state)
{
    (void)state;
    static char ranks[8192];
    static const char config[] = "{\"added_tokens_decoder\":{\"262\":{\"content\":\"[EOS]\"},"
                                 "\"263\":{\"content\":\"<think>\",\"special\":false}}}";
    struct memory_files files;
    struct tokenizer *t;
    memory_files_init(&files);
    memory_files_put(&files, "m/tiktoken.model", ranks, write_ranks(ranks, sizeof ranks));
    memory_files_put(&files, "m/tokenizer_config.json", config, strlen(config));
    must(tokenizer_open_new(&t, &files.files, "m", &why));
    assert_encodes(t, "abcd", SPECIAL_PARSE, "257 100");
    assert_encodes(t, "bcab", SPECIAL_PARSE, "258 256");
    assert_encodes(t, "xyz", SPECIAL_PARSE, "260"); /* whole, though nothing merges to it */
    assert_encodes(t, "xyzx", SPECIAL_PARSE, "120 121 122 120");
    assert_encodes(t, "ab a[EOS]<think>", SPECIAL_PARSE, "256 259 262 263");
    assert_encodes(t, "<|reserved_token_261|>", SPECIAL_PARSE, "261");
    assert_int_equal(tokenizer_size(t), 261 + 256);
    assert_int_equal(tokenizer_find(t, "[EOS]"), 262);
    assert_true(tokenizer_is_special(t, 262));
    assert_false(tokenizer_is_special(t, 263));
    assert_string_equal(tokenizer_token_text(t, 32), "Ġ");
    tokenizer_free(t);

    static const char *const wrong[] = { "YWI=\n", "YWI= x\n", " 5\n", "YWI= 1 2\n", "!!!! 1\n" };
    for (size_t i = 0; i < COUNT_OF(wrong); i++) {
        memory_files_put(&files, "m/tiktoken.model", wrong[i], strlen(wrong[i]));
        assert_int_equal(tokenizer_open_new(&t, &files.files, "m", &why), MF_ERR_FORMAT);
        assert_non_null(strstr(why.text, "m/tiktoken.model"));
    }
    assert_int_equal(files.open_count, 0);
}

/* Whatever call on a file fails, it is reported. */
static void every_failing_read_is_reported(void **state)
{
    (void)state;
    static char ranks[8192];
    struct memory_files memory;
    struct failing_files files;
    for (int i = 0; i < 2; i++) {
        char json[] = "{\"pre_tokenizer\":{\"type\":\"ByteLevel\"},"
                      "\"model\":{\"vocab\":{\"a\":0},\"merges\":[]}}";
        memory_files_init(&memory);
        memory_files_put(&memory, "m/tokenizer_config.json", "{}", 2);
        if (i == 0)
            memory_files_put(&memory, "m/tokenizer.json", json, strlen(json));
        else
            memory_files_put(&memory, "m/tiktoken.model", ranks, write_ranks(ranks, sizeof ranks));
        failing_files_init(&files, &memory.files);
        for (uint64_t nth = 1;; nth++) {
            struct tokenizer *tokenizer;
            failing_files_arm(&files, nth);
            mf_status status = tokenizer_open_new(&tokenizer, &files.files, "m", &why);
            bool fired = failing_files_disarm(&files);
            assert_int_equal(status, fired ? MF_ERR_IO : MF_OK);
            tokenizer_free(tokenizer);
            assert_int_equal(memory.open_count, 0);
            if (!fired) break;
            assert_true(nth < 100);
        }
    }
}

#define SPAN(text)                                                                                 \
    {                                                                                              \
        text, sizeof(text) - 1                                                                     \
    }

static void tables_give_a_tokenizer(void **state)
{
    (void)state;
    static const struct text_span tokens[] = { SPAN("a"),     SPAN("b"),   SPAN(""),
                                               SPAN("ab"),    SPAN("<s>"), SPAN("<t>"),
                                               SPAN("[PAD]"), SPAN("õ"),   SPAN("<0x63>") };
    static const int32_t types[] = { TOKEN_NORMAL, TOKEN_NORMAL,       TOKEN_NORMAL,
                                     TOKEN_NORMAL, TOKEN_CONTROL,      TOKEN_USER_DEFINED,
                                     TOKEN_UNUSED, TOKEN_USER_DEFINED, TOKEN_BYTE };
    static const struct text_span merges[] = { SPAN("a b") }, left[] = { SPAN("a") },
                                  right[] = { SPAN("b") };
    struct tokenizer_tables tables = { .tokens = tokens,
                                       .token_count = COUNT_OF(tokens),
                                       .types = types,
                                       .merges = merges,
                                       .merge_count = 1,
                                       .pre_tokenizer = "qwen2",
                                       .add_bos = true,
                                       .bos_id = 4 };
    struct tokenizer *t;
    must(tokenizer_from_tables_new(&t, &tables, "tables", &why));
    assert_encodes(t, "ab<s>b<t>cõ", SPECIAL_PARSE, "3 4 1 5 8 7");
    assert_int_equal(tokenizer_bos(t), 4);
    assert_int_equal(tokenizer_size(t), 9);
    assert_null(tokenizer_token_text(t, 2));
    assert_true(tokenizer_is_special(t, 4));
    assert_false(tokenizer_is_special(t, 5));
    size_t length;
    assert_memory_equal(tokenizer_token_bytes(t, 7, &length), "õ", 2);
    tokenizer_free(t);

    tables.merges = left;
    tables.merge_rights = right;
    must(tokenizer_from_tables_new(&t, &tables, "tables", &why));
    assert_encodes(t, "abab", SPECIAL_PARSE, "3 3");
    tokenizer_free(t);

    tables.bos_id = 2;
    assert_int_equal(tokenizer_from_tables_new(&t, &tables, "tables", &why), MF_ERR_MISMATCH);
    assert_null(t);
    tables.pre_tokenizer = "bert";
    assert_int_equal(tokenizer_from_tables_new(&t, &tables, "tables", &why), MF_ERR_UNSUPPORTED);
    assert_non_null(strstr(why.text, "bert"));
}

static void vocabulary_of_plain_bytes_decodes(void **state)
{
    (void)state;
    static const struct text_span tokens[] = { SPAN("\xF0\x9F"), SPAN(""), SPAN(" a") };
    struct tokenizer_tables tables = {
        .tokens = tokens, .token_count = COUNT_OF(tokens), .bos_id = -1, .bytes_only = true
    };
    struct tokenizer *t;
    size_t length;
    struct token_list ids = { 0 };
    must(tokenizer_from_tables_new(&t, &tables, "vocab.bin", &why));
    assert_memory_equal(tokenizer_token_bytes(t, 0, &length), "\xF0\x9F", 2);
    assert_int_equal(length, 2);
    assert_null(tokenizer_token_bytes(t, 1, &length));
    assert_string_equal(tokenizer_token_text(t, 2), "Ġa");
    assert_int_equal(tokenizer_find(t, "Ġa"), 2);
    assert_int_equal(tokenizer_encode(&ids, t, "a", 1, SPECIAL_PARSE, &why), MF_ERR_UNSUPPORTED);
    tokenizer_free(t);
}

/* -------------------------------------------------------------- the ancestors' files */

static void put_packed_text(struct byte_writer *w, const char *text)
{
    put_u16(w, (uint16_t)strlen(text));
    put_bytes(w, text, strlen(text));
}

static void put_packed_token(struct byte_writer *w, uint32_t id, const char *text)
{
    put_u32(w, id);
    put_packed_text(w, text);
}

/* a, b, Ġ, ab; "a b" merges; <think>, <|end|> and DeepSeek's way to write that; id 5 is a gap */
static void put_packed(struct byte_writer *w)
{
    static const char *const tokens[] = { "a", "b", "Ġ", "ab" };
    put_bytes(w, "BPET", 4);
    put_u32(w, 1);
    put_u32(w, 4);
    put_u32(w, 1);
    put_u32(w, 3);
    for (uint32_t i = 0; i < 4; i++) put_packed_token(w, i, tokens[i]);
    put_packed_text(w, "a");
    put_packed_text(w, "b");
    put_packed_token(w, 4, "<think>");
    put_packed_token(w, 6, "<|end|>");
    put_packed_token(w, 7, "<｜end｜>");
}

static const struct ancestors_tokenizer in_p = { "p", NULL, "qwen2" };

static void ancestors_tokenizers_are_read(void **state)
{
    (void)state;
    json_t *config = json_pack("{s:b,s:s}", "add_bos_token", 1, "bos_token", "<|end|>");
    struct memory_files files;
    struct byte_writer w = { 0 };
    struct tokenizer *t;
    memory_files_init(&files);
    must(tokenizer_open_ancestors_new(&t, &files.files, &in_p, &why));
    assert_null(t); /* nothing there is not an error */

    put_packed(&w);
    memory_files_put(&files, "p/tokenizer.bin", w.bytes, w.count);
    must(tokenizer_open_ancestors_new(&t, &files.files, &in_p, &why));
    assert_encodes(t, "ab b<think><|end|><｜end｜>", SPECIAL_PARSE, "3 2 1 4 6 7");
    assert_false(tokenizer_is_special(t, 4));
    assert_true(tokenizer_is_special(t, 6));
    assert_true(tokenizer_is_special(t, 7));
    assert_null(tokenizer_token_text(t, 5));
    assert_int_equal(tokenizer_size(t), 8);
    assert_int_equal(tokenizer_bos(t), -1);
    tokenizer_free(t);

    const struct ancestors_tokenizer with_config = { "p", config, "qwen2" };
    must(tokenizer_open_ancestors_new(&t, &files.files, &with_config, &why));
    assert_int_equal(tokenizer_bos(t), 6);
    tokenizer_free(t);
    json_decref(config);
    byte_writer_free(&w);

    static const uint8_t vocab[] = { 3, 0, 0, 0, 2, 0, 0, 0, 2, 0, ' ', 'a', 0, 0, 1, 0, 0xF0 };
    memory_files_init(&files);
    memory_files_put(&files, "p/vocab.bin", vocab, sizeof vocab);
    must(tokenizer_open_ancestors_new(&t, &files.files, &in_p, &why));
    assert_string_equal(tokenizer_token_text(t, 0), "Ġa");
    assert_null(tokenizer_token_text(t, 1));
    size_t length;
    assert_memory_equal(tokenizer_token_bytes(t, 2, &length), "\xF0", 1);
    struct token_list ids = { 0 };
    assert_int_equal(tokenizer_encode(&ids, t, "a", 1, SPECIAL_PARSE, &why), MF_ERR_UNSUPPORTED);
    tokenizer_free(t);
    assert_int_equal(files.open_count, 0);
}

static void expect_packed_refusal(const char *name, const void *bytes, size_t count,
                                  const char *says)
{
    struct memory_files files;
    struct tokenizer *t;
    memory_files_init(&files);
    memory_files_put(&files, name, bytes, count);
    mf_status status = tokenizer_open_ancestors_new(&t, &files.files, &in_p, &why);
    assert_null(t);
    if (status != MF_ERR_FORMAT || !strstr(why.text, says) || !strstr(why.text, name))
        fail_msg("\"%s\" (%s), nothing of \"%s\"", why.text, mf_status_name(status), says);
}

static void inconsistent_ancestors_files_are_refused(void **state)
{
    (void)state;
    struct byte_writer w = { 0 };
    put_packed(&w);
    for (size_t cut = 0; cut < w.count; cut++)
        expect_packed_refusal("p/tokenizer.bin", w.bytes, cut, cut < 20 ? "ends inside" : "");
    static const struct {
        size_t at;
        uint32_t value;
        const char *says;
    } lies[] = {
        { 0, 0x21212121, "no \"BPET\"" },
        { 4, 2, "version 1" },
        { 8, UINT32_MAX, "bytes for 4294967295 tokens" },
        { 12, 1000, "1000 merges" },
        { 16, UINT32_MAX, "4294967295 added tokens" },
        { 20, 5000, "has id 5000" },
        { 20, UINT32_MAX, "has id 4294967295" },
        { 27, 0, "id 0 is given twice" },
    };
    for (size_t i = 0; i < COUNT_OF(lies); i++) {
        uint32_t kept;
        memcpy(&kept, w.bytes + lies[i].at, 4);
        memcpy(w.bytes + lies[i].at, &lies[i].value, 4);
        expect_packed_refusal("p/tokenizer.bin", w.bytes, w.count, lies[i].says);
        memcpy(w.bytes + lies[i].at, &kept, 4);
    }
    byte_writer_free(&w);
    expect_packed_refusal("p/vocab.bin", "\xFF\xFF\xFF\xFF\0\0\0\0", 8, "4294967295 tokens");
    expect_packed_refusal("p/vocab.bin", "\2\0\0\0\1\0\0\0\1\0a\2\0b", 14, "ends inside a token");
    expect_packed_refusal("p/vocab.bin", "\0\0\0\0\0\0\0\0", 8, "no tokens");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wrong_files_get_a_sentence),
        cmocka_unit_test(a_cut_file_is_refused),
        cmocka_unit_test(a_directory_may_ask_for_bos),
        cmocka_unit_test(kimi_vocabulary_uses_ranks),
        cmocka_unit_test(every_failing_read_is_reported),
        cmocka_unit_test(tables_give_a_tokenizer),
        cmocka_unit_test(vocabulary_of_plain_bytes_decodes),
        cmocka_unit_test(ancestors_tokenizers_are_read),
        cmocka_unit_test(inconsistent_ancestors_files_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
