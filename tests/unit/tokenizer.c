/* tokenizer: text to ids and back, with a small published vocabulary (tests/fixtures/tokenizer)
 * and with vocabularies of a few tokens that are written here. */
#include "support/test.h"
#include "support/failing_files.h"
#include "support/memory_files.h"
#include "support/random_text.h"
#include "support/token_vectors.h"

#include "base/file.h"
#include "model/tokenizer_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <utf8proc.h>

static mf_error why;
static char mini_path[PATH_CAPACITY];
static struct tokenizer *mini;

static void must(mf_status status)
{
    if (status != MF_OK) fail_msg("%s (%s)", why.text, why.origin);
}

static int open_mini(void **state)
{
    (void)state;
    const char *source = getenv("MOEFLUX_SOURCE");
    snprintf(mini_path, sizeof mini_path, "%s/tests/fixtures/tokenizer", source ? source : ".");
    if (tokenizer_open_new(&mini, &files_posix, mini_path, &why) == MF_OK) return 0;
    print_error("%s\n", why.text);
    return -1;
}

static int close_mini(void **state)
{
    (void)state;
    tokenizer_free(mini);
    return 0;
}

/* ------------------------------------------------------------- small tokenizers */

/* JSON with ' for ", so that it can be read here. */
static mf_status try_parse(struct tokenizer **out, const char *text)
{
    char *json = strdup(text);
    assert_non_null(json);
    for (char *c = json; *c; c++)
        if (*c == '\'') *c = '"';
    mf_status status = tokenizer_parse_new(out, json, strlen(json), "the file", &why);
    free(json);
    return status;
}

static struct tokenizer *parse(const char *text)
{
    struct tokenizer *tokenizer;
    must(try_parse(&tokenizer, text));
    return tokenizer;
}

#define BYTE_LEVEL "'pre_tokenizer':{'type':'ByteLevel','add_prefix_space':false,'use_regex':false}"
#define LETTERS    "'a':0,'b':1,'c':2,'d':3,'Ġ':4"

/* Encodes `text` and compares with ids written as "1 2 3". */
static void assert_encodes(const struct tokenizer *tokenizer, const char *text,
                           enum special_mode mode, const char *wanted)
{
    char found[256] = "";
    struct token_list ids = vectors_encode(tokenizer, text, strlen(text), mode);
    for (size_t i = 0; i < ids.count; i++) {
        size_t used = strlen(found);
        snprintf(found + used, sizeof found - used, i ? " %d" : "%d", ids.ids[i]);
    }
    assert_string_equal(found, wanted);
    token_list_free(&ids);
}

static void merges_go_by_rank_then_from_the_left(void **state)
{
    (void)state;
    struct tokenizer *t = parse("{" BYTE_LEVEL ",'model':{'type':'BPE','vocab':{" LETTERS
                                ",'ab':5,'bc':6,'aa':7,'abc':8},"
                                "'merges':['b c','a b','a a','ab c']}}");
    assert_encodes(t, "abc", SPECIAL_PARSE, "0 6"); /* b c comes first, and a bc is none */
    assert_encodes(t, "abd", SPECIAL_PARSE, "5 3");
    assert_encodes(t, "aaa", SPECIAL_PARSE, "7 0");
    assert_encodes(t, "aaaab", SPECIAL_PARSE, "7 0 5");
    assert_encodes(t, "", SPECIAL_PARSE, "");
    tokenizer_free(t);
}

static void both_spellings_of_merges_are_one(void **state)
{
    (void)state;
    struct tokenizer *t = parse("{" BYTE_LEVEL ",'model':{'type':'BPE','vocab':{" LETTERS
                                ",'ab':5,'Ġa':6},'merges':[['a','b'],['Ġ','a']]}}");
    assert_encodes(t, "ab ab a", SPECIAL_PARSE, "5 4 5 6");
    tokenizer_free(t);
    t = parse("{" BYTE_LEVEL ",'model':{'merges':['a b','\\u0120 a'],'vocab':{" LETTERS
              ",'\\u0061b':5,'\\u0120a':6}}}");
    assert_encodes(t, "ab ab a", SPECIAL_PARSE, "5 4 5 6");
    tokenizer_free(t);
}

static void whole_pieces_may_need_no_merges(void **state)
{
    (void)state;
    static const char text[] = "{" BYTE_LEVEL ",'model':{'ignore_merges':%s,'vocab':{" LETTERS
                               ",'ab':5,'abcd':6},'merges':['a b']}}";
    char json[512];
    snprintf(json, sizeof json, text, "true");
    struct tokenizer *t = parse(json);
    assert_encodes(t, "abcd", SPECIAL_PARSE, "6");
    tokenizer_free(t);
    snprintf(json, sizeof json, text, "false");
    t = parse(json);
    for (int i = 0; i < 3; i++) assert_encodes(t, "abcd", SPECIAL_PARSE, "5 2 3");
    for (int i = 0; i < 3; i++) assert_encodes(t, "ab", SPECIAL_PARSE, "5");
    tokenizer_free(t);
}

static void bytes_fall_back(void **state)
{
    (void)state;
    /* U+FFFD is ï¿½ in the byte alphabet. */
    struct tokenizer *t = parse("{" BYTE_LEVEL ",'model':{'byte_fallback':true,'vocab':{" LETTERS
                                ",'<0x65>':5,'ï':6,'¿':7,'½':8},'merges':[]}}");
    assert_encodes(t, "aef", SPECIAL_PARSE, "0 5 6 7 8");
    size_t length;
    const char *bytes = tokenizer_token_bytes(t, 5, &length);
    assert_int_equal(length, 1);
    assert_memory_equal(bytes, "e", 1);
    assert_string_equal(tokenizer_token_text(t, 5), "<0x65>");
    tokenizer_free(t);

    t = parse("{" BYTE_LEVEL ",'model':{'vocab':{" LETTERS "},'merges':[]}}");
    struct token_list ids = { 0 };
    must(token_list_append(&ids, 77, &why));
    assert_int_equal(tokenizer_encode(&ids, t, "abe", 3, SPECIAL_PARSE, &why), MF_ERR_FORMAT);
    assert_non_null(strstr(why.text, "0x65"));
    assert_int_equal(ids.count, 1); /* as it was */
    token_list_free(&ids);
    tokenizer_free(t);
}

/* ----------------------------------------------------------------- added tokens */

#define ADDED(id, text, flags) "{'id':" #id ",'content':'" text "'," flags "}"

static void added_tokens_are_leftmost_and_longest(void **state)
{
    (void)state;
    struct tokenizer *t =
        parse("{" BYTE_LEVEL ",'added_tokens':[" ADDED(10, "<x", "'special':false") "," ADDED(
            11, "<x>",
            "'special':true") "," ADDED(12, "<x><y",
                                        "'special':false") "," ADDED(13, "<y>",
                                                                     "'special':false") "],'model':"
                                                                                        "{'vocab':"
                                                                                        "{" LETTERS
                                                                                        ",'<':5,'x'"
                                                                                        ":6,'y':7,'"
                                                                                        ">':8},'"
                                                                                        "merges':[]"
                                                                                        "}}");
    assert_encodes(t, "a<x>b", SPECIAL_PARSE, "0 11 1");
    assert_encodes(t, "<x", SPECIAL_PARSE, "10");
    assert_encodes(t, "<<x", SPECIAL_PARSE, "5 10");
    assert_encodes(t, "<x><y>", SPECIAL_PARSE, "12 8");
    assert_encodes(t, "<x><", SPECIAL_PARSE, "11 5");
    assert_encodes(t, "<x><y>", SPECIAL_NONE, "5 6 8 5 7 8");
    assert_encodes(t, "<x>a<y>", SPECIAL_AS_TEXT, "5 6 8 0 13");
    assert_int_equal(tokenizer_find(t, "<x>"), 11);
    assert_int_equal(tokenizer_find(t, "a"), 0);
    assert_int_equal(tokenizer_find(t, "<"), 5);
    assert_int_equal(tokenizer_find(t, "<z>"), -1);
    assert_int_equal(tokenizer_find(t, ""), -1);
    assert_true(tokenizer_is_special(t, 11));
    assert_false(tokenizer_is_special(t, 12));
    assert_false(tokenizer_is_special(t, 999));
    assert_int_equal(tokenizer_size(t), 14);
    assert_null(tokenizer_token_text(t, 9)); /* a gap */
    assert_null(tokenizer_token_text(t, -1));
    tokenizer_free(t);
}

/* A control token that a vocabulary lists cannot be had by writing it. */
static void a_special_token_cannot_be_forged(void **state)
{
    (void)state;
    struct tokenizer *t = parse("{" BYTE_LEVEL ",'added_tokens':[" ADDED(
        5, "ab", "'special':true") "],'model':{'ignore_merges':true,'vocab':{" LETTERS
                                   ",'ab':5},'merges':[]}}");
    assert_encodes(t, "ab", SPECIAL_PARSE, "5");
    assert_encodes(t, "ab", SPECIAL_AS_TEXT, "0 1");
    assert_encodes(t, "ab", SPECIAL_NONE, "0 1");
    tokenizer_free(t);
}

static void added_tokens_strip_and_stand_alone(void **state)
{
    (void)state;
    struct tokenizer *t =
        parse("{" BYTE_LEVEL ",'added_tokens':[" ADDED(10, "L", "'lstrip':true") "," ADDED(
            11, "R",
            "'rstrip':true") "," ADDED(12, "W",
                                       "'single_word':true") "],'model':{'vocab':{" LETTERS
                                                             ",'W':5,'!':6,'Ċ':7},'merges':[]}}");
    assert_encodes(t, "a \n L a", SPECIAL_PARSE, "0 10 4 0");
    assert_encodes(t, "a R \n a", SPECIAL_PARSE, "0 4 11 0");
    assert_encodes(t, "R L", SPECIAL_PARSE, "11 10");
    assert_encodes(t, " L", SPECIAL_PARSE, "10");
    assert_encodes(t, "R ", SPECIAL_PARSE, "11");
    assert_encodes(t, "W", SPECIAL_PARSE, "12");
    assert_encodes(t, "aW W!W Wa", SPECIAL_PARSE, "0 5 4 12 6 12 4 5 0");
    tokenizer_free(t);
}

static void added_tokens_may_be_looked_for_after_nfc(void **state)
{
    (void)state;
    struct tokenizer *t = parse("{'normalizer':{'type':'NFC'}," BYTE_LEVEL
                                ",'added_tokens':[" ADDED(10, "é", "'normalized':true") "," ADDED(
                                    11, "è", "'normalized':false") "],'model':{'vocab':{" LETTERS
                                                                   ",'Ã':5,'¨':6},'merges':[]}}");
    assert_encodes(t, "ae\u0301b", SPECIAL_PARSE, "0 10 1");
    assert_encodes(t, "aéb", SPECIAL_PARSE, "0 10 1");
    assert_encodes(t, "aèb", SPECIAL_PARSE, "0 11 1");
    assert_encodes(t, "ae\u0300b", SPECIAL_PARSE, "0 5 6 1"); /* not è yet when it is looked for */
    tokenizer_free(t);
}

/* ----------------------------------------------------------------- vectors, BPE */

static void vectors_of_the_small_vocabulary(void **state)
{
    (void)state;
    char path[PATH_CAPACITY];
    must(path_join(path, sizeof path, mini_path, "vectors.jsonl", &why));
    vectors_check(path, mini);
}

/* BPE as its definition says it: look for the best pair, merge it, again. */
static size_t merge_naively(uint32_t *ids, size_t count)
{
    for (;;) {
        const struct merge *best = NULL;
        size_t where = 0;
        for (size_t i = 0; i + 1 < count; i++) {
            const struct merge *merge = merge_table_find(&mini->merges, ids[i], ids[i + 1]);
            if (merge && (!best || merge->rank < best->rank)) {
                best = merge;
                where = i;
            }
        }
        if (!best) return count;
        ids[where] = best->result;
        count--;
        memmove(&ids[where + 1], &ids[where + 2], (count - where - 1) * sizeof *ids);
    }
}

/* Short and long pieces, letters that merge much. */
static void pieces_are_merged_as_defined(void **state)
{
    (void)state;
    enum { LENGTH = 300, ROUNDS = 3000 };
    struct random_text random = { 7 };
    struct bpe_scratch scratch = { 0 };
    struct token_list ids = { 0 };
    for (int round = 0; round < ROUNDS; round++) {
        char text[LENGTH];
        uint32_t wanted[LENGTH], kinds = 1 + random_below(&random, 6);
        size_t length = 1 + random_below(&random, LENGTH);
        for (size_t i = 0; i < length; i++) {
            text[i] = " etaonrish"[random_below(&random, kinds)];
            wanted[i] = (uint32_t)mini->byte_ids[(uint8_t)text[i]];
        }
        ids.count = 0;
        must(bpe_encode_piece(&ids, &scratch, mini, (struct text_span){ text, length }, &why));
        assert_int_equal(ids.count, merge_naively(wanted, length));
        assert_memory_equal(ids.ids, wanted, ids.count * sizeof *ids.ids);
    }
    token_list_free(&ids);
    bpe_scratch_free(&scratch);
}

/* ------------------------------------------------------------------ round trips */

/* The bytes of `ids`, through a stream, which must give out whole characters. */
static size_t decode(char *out, size_t capacity, const struct tokenizer *tokenizer,
                     const struct token_list *ids)
{
    struct token_stream stream = { 0 };
    size_t length = 0;
    for (size_t i = 0; i < ids->count; i++)
        length +=
            token_stream_push(&stream, tokenizer, ids->ids[i], out + length, capacity - length);
    return length + token_stream_flush(&stream, out + length, capacity - length);
}

static void assert_round_trip(const struct tokenizer *tokenizer, const char *text, size_t length,
                              const char *wanted, size_t wanted_length)
{
    char out[2048];
    struct token_list ids = vectors_encode(tokenizer, text, length, SPECIAL_PARSE);
    size_t out_length = decode(out, sizeof out, tokenizer, &ids);
    if (out_length != wanted_length || memcmp(out, wanted, wanted_length) != 0) {
        for (size_t i = 0; i < length; i++) print_error("%02x", (uint8_t)text[i]);
        fail_msg(" does not come back");
    }
    token_list_free(&ids);
}

enum { CHARACTERS = 40, ROUND_TRIPS = 100000 };

/* 100,000 strings, half of them with bytes that are no UTF-8, come back as they were. */
static void any_bytes_come_back(void **state)
{
    (void)state;
    struct random_text random = { 42 };
    mini->nfc = false;
    for (int i = 0; i < ROUND_TRIPS; i++) {
        char text[CHARACTERS * UTF8_MAX];
        size_t length = random_string(text, &random, CHARACTERS, i % 2);
        assert_round_trip(mini, text, length, text, length);
    }
    mini->nfc = true;
}

/* Where the tokenizer normalises, utf8proc's NFC of the text comes back. */
static void text_comes_back_in_nfc(void **state)
{
    (void)state;
    struct random_text random = { 43 };
    for (int i = 0; i < ROUND_TRIPS; i++) {
        char text[CHARACTERS * UTF8_MAX + 1];
        size_t length = random_string(text, &random, CHARACTERS, false);
        utf8proc_uint8_t *wanted;
        utf8proc_ssize_t wanted_length =
            utf8proc_map((const utf8proc_uint8_t *)text, (utf8proc_ssize_t)length, &wanted,
                         UTF8PROC_STABLE | UTF8PROC_COMPOSE);
        assert_true(wanted_length >= 0);
        assert_round_trip(mini, text, length, (const char *)wanted, (size_t)wanted_length);
        free(wanted);
    }
}

/* Bytes that are no UTF-8 end what can combine. */
static void nfc_leaves_other_bytes_alone(void **state)
{
    (void)state;
    static const struct {
        const char *text, *wanted;
    } cases[] = {
        { "e\u0301", "é" },
        { "e\xFF\u0301", "e\xFF\u0301" },
        { "\xC3"
          "e\u0301\xE2\x82",
          "\xC3\u00E9\xE2\x82" },
        { "\xFF\u0301", "\xFF\u0301" },
        { "a\u0323\u0301b\u0301\u0323", "\u1EA1\u0301\u1E05\u0301" },
        { "\u1100\u1161\u11A8", "\uAC01" },
        { "한글\u11A8", "한글\u11A8" },
        { "\uAC00\u11A8", "\uAC01" },
        { "\u212B\u2000", "\u00C5\u2002" },
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++)
        assert_round_trip(mini, cases[i].text, strlen(cases[i].text), cases[i].wanted,
                          strlen(cases[i].wanted));
}

/* What text_is_nfc takes for granted holds for every character: alone it is in NFC, it is
 * no mark, and it is never the later part of a composition. */
static void characters_taken_for_stable_are(void **state)
{
    (void)state;
    size_t stable = 0;
    for (uint32_t c = 0; c <= 0x10FFFF; c++) {
        char text[UTF8_MAX];
        if (c >= 0xD800 && c <= 0xDFFF) continue;
        bool taken = text_is_nfc(text, utf8_encode(text, c));
        stable += taken;
        utf8proc_int32_t parts[32];
        int boundary = 0;
        utf8proc_ssize_t count =
            utf8proc_decompose_char((utf8proc_int32_t)c, parts, 32, UTF8PROC_DECOMPOSE, &boundary);
        assert_in_range(count, 1, 32);
        for (utf8proc_ssize_t i = 1; i < count; i++) {
            char part[UTF8_MAX];
            assert_false(text_is_nfc(part, utf8_encode(part, (uint32_t)parts[i])));
        }
        if (!taken) continue;
        assert_int_equal(utf8proc_get_property((utf8proc_int32_t)c)->combining_class, 0);
        assert_int_equal(utf8proc_normalize_utf32(parts, count, UTF8PROC_COMPOSE | UTF8PROC_STABLE),
                         1);
        assert_int_equal(parts[0], c);
    }
    assert_true(stable > 80000);
}

/* -------------------------------------------------------------------- streaming */

static void a_stream_gives_whole_characters(void **state)
{
    (void)state;
    static const char text[] = "a😀é한\xF0\x9Fz\xE2\x82";
    struct token_stream stream = { 0 };
    char out[64];
    size_t length = 0;
    assert_true(token_stream_capacity(mini) >= mini->vocabulary.longest + 3);
    for (size_t i = 0; i < strlen(text); i++) {
        int32_t id = mini->byte_ids[(uint8_t)text[i]];
        size_t count = token_stream_push(&stream, mini, id, out + length, sizeof out - length);
        /* A lead byte never comes without what follows it, where that follows. */
        uint32_t character;
        if (count > 0 && (uint8_t)out[length] >= 0xC2 && i < 11)
            assert_int_equal(utf8_decode(&character, out + length, count), count);
        length += count;
    }
    assert_int_equal(length, strlen(text) - 2);
    assert_int_equal(token_stream_flush(&stream, out + length, sizeof out - length), 2);
    assert_memory_equal(out, text, strlen(text));
    assert_int_equal(token_stream_flush(&stream, out, sizeof out), 0);
    assert_int_equal(token_stream_push(&stream, mini, 1 << 20, out, sizeof out), 0);
    assert_int_equal(token_stream_push(&stream, mini, -1, out, sizeof out), 0);
}

/* ------------------------------------------------------------------------- time */

static double cpu_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static double time_encode(const char *text, size_t length)
{
    double best = 1e9;
    for (int i = 0; i < 3; i++) {
        double start = cpu_seconds();
        struct token_list ids = vectors_encode(mini, text, length, SPECIAL_PARSE);
        double taken = cpu_seconds() - start;
        best = taken < best ? taken : best;
        token_list_free(&ids);
    }
    return best;
}

/* Four times the text takes about four times as long, sixteen would be quadratic. */
static void time_grows_with_the_text(void **state)
{
    (void)state;
    enum { SMALL = 1 << 17, LARGE = 4 * SMALL };
    static const char *const units[] = { "a",          " ",    "😀",      "\n",
                                         "ab ",        "的",   "\u0301", "\u0301\u0323",
                                         "e\u0301",    "\xFF", "A",      "'",
                                         "<|im_start", "  x",  "1" };
    char *text = malloc(LARGE);
    assert_non_null(text);
    for (size_t i = 0; i < COUNT_OF(units); i++) {
        size_t unit = strlen(units[i]);
        for (size_t at = 0; at < LARGE; at++) text[at] = units[i][at % unit];
        double small = time_encode(text, SMALL), large = time_encode(text, LARGE);
        if (large > 10 * small + 0.01)
            fail_msg("\"%s\": %d bytes take %.1f ms, %d take %.1f", units[i], SMALL, small * 1e3,
                     LARGE, large * 1e3);
    }
    free(text);
}

/* -------------------------------------------------------------------- bad input */

static void wrong_files_get_a_sentence(void **state)
{
    (void)state;
#define MODEL "'model':{'type':'BPE','vocab':{'a':0,'b':1,'ab':2},'merges':['a b']}"
    static const struct {
        const char *json, *says;
    } cases[] = {
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
        { "{" MODEL "," BYTE_LEVEL ",'added_tokens':[{'id':5,'content':'x','special':1}]}",
          "special" },
        { "{" MODEL "," BYTE_LEVEL ",'added_tokens':[{'id':5,'content':'x'},"
          "{'id':5,'content':'x'}]}",
          "stands twice" },
    };
#undef MODEL
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct tokenizer *tokenizer;
        mf_status status = try_parse(&tokenizer, cases[i].json);
        assert_null(tokenizer);
        if (status == MF_OK || !strstr(why.text, cases[i].says) || !strstr(why.text, "the file"))
            fail_msg("%s: %s says \"%s\", nothing of \"%s\"", cases[i].json, mf_status_name(status),
                     why.text, cases[i].says);
    }
}

/* A file that is cut off anywhere is refused, and nothing is left behind. */
static void a_cut_file_is_refused(void **state)
{
    (void)state;
    char path[PATH_CAPACITY];
    size_t length;
    must(path_join(path, sizeof path, mini_path, "tokenizer.json", &why));
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

static void kimi_has_ranks_and_no_merges(void **state)
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

static void bytes_alone_can_decode(void **state)
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(merges_go_by_rank_then_from_the_left),
        cmocka_unit_test(both_spellings_of_merges_are_one),
        cmocka_unit_test(whole_pieces_may_need_no_merges),
        cmocka_unit_test(bytes_fall_back),
        cmocka_unit_test(added_tokens_are_leftmost_and_longest),
        cmocka_unit_test(a_special_token_cannot_be_forged),
        cmocka_unit_test(added_tokens_strip_and_stand_alone),
        cmocka_unit_test(added_tokens_may_be_looked_for_after_nfc),
        cmocka_unit_test(vectors_of_the_small_vocabulary),
        cmocka_unit_test(pieces_are_merged_as_defined),
        cmocka_unit_test(any_bytes_come_back),
        cmocka_unit_test(text_comes_back_in_nfc),
        cmocka_unit_test(nfc_leaves_other_bytes_alone),
        cmocka_unit_test(characters_taken_for_stable_are),
        cmocka_unit_test(a_stream_gives_whole_characters),
        cmocka_unit_test(time_grows_with_the_text),
        cmocka_unit_test(wrong_files_get_a_sentence),
        cmocka_unit_test(a_cut_file_is_refused),
        cmocka_unit_test(a_directory_may_ask_for_bos),
        cmocka_unit_test(kimi_has_ranks_and_no_merges),
        cmocka_unit_test(every_failing_read_is_reported),
        cmocka_unit_test(tables_give_a_tokenizer),
        cmocka_unit_test(bytes_alone_can_decode),
    };
    return cmocka_run_group_tests(tests, open_mini, close_mini);
}
