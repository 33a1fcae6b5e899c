/* tokenizer: text to ids and back, with a small published vocabulary (tests/fixtures/tokenizer)
 * and with vocabularies of a few tokens that are written here. */
#include "support/test.h"
#include "support/random_text.h"
#include "support/small_tokenizer.h"
#include "support/token_vectors.h"

#include "base/file.h"
#include "tokenizer/internal.h"
#include "support/one_call.h"

#include <pthread.h>
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

/* ----------------------------------------------------------------------- merges */

static void merges_go_by_rank_then_from_the_left(void **state)
{
    (void)state;
    struct tokenizer *t = small_tokenizer("{" BYTE_LEVEL ",'model':{'type':'BPE','vocab':{" LETTERS
                                          ",'ab':5,'bc':6,'aa':7,'abc':8},"
                                          "'merges':['b c','a b','a a','ab c']}}");
    assert_encodes(t, "abc", SPECIAL_PARSE, "0 6"); /* b c comes first, and a bc is none */
    assert_encodes(t, "abd", SPECIAL_PARSE, "5 3");
    assert_encodes(t, "aaa", SPECIAL_PARSE, "7 0");
    assert_encodes(t, "aaaab", SPECIAL_PARSE, "7 0 5");
    assert_encodes(t, "", SPECIAL_PARSE, "");
    tokenizer_free(t);
}

static void both_notations_of_merges_are_equal(void **state)
{
    (void)state;
    struct tokenizer *t = small_tokenizer("{" BYTE_LEVEL ",'model':{'type':'BPE','vocab':{" LETTERS
                                          ",'ab':5,'Ġa':6},'merges':[['a','b'],['Ġ','a']]}}");
    assert_encodes(t, "ab ab a", SPECIAL_PARSE, "5 4 5 6");
    tokenizer_free(t);
    t = small_tokenizer("{" BYTE_LEVEL ",'model':{'merges':['a b','\\u0120 a'],'vocab':{" LETTERS
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
    struct tokenizer *t = small_tokenizer(json);
    assert_encodes(t, "abcd", SPECIAL_PARSE, "6");
    tokenizer_free(t);
    snprintf(json, sizeof json, text, "false");
    t = small_tokenizer(json);
    for (int i = 0; i < 3; i++) assert_encodes(t, "abcd", SPECIAL_PARSE, "5 2 3");
    for (int i = 0; i < 3; i++) assert_encodes(t, "ab", SPECIAL_PARSE, "5");
    tokenizer_free(t);
}

static void unknown_text_falls_back_to_bytes(void **state)
{
    (void)state;
    /* U+FFFD is ï¿½ in the byte alphabet. */
    struct tokenizer *t =
        small_tokenizer("{" BYTE_LEVEL ",'model':{'byte_fallback':true,'vocab':{" LETTERS
                        ",'<0x65>':5,'ï':6,'¿':7,'½':8},'merges':[]}}");
    assert_encodes(t, "aef", SPECIAL_PARSE, "0 5 6 7 8");
    size_t length;
    const char *bytes = tokenizer_token_bytes(t, 5, &length);
    assert_int_equal(length, 1);
    assert_memory_equal(bytes, "e", 1);
    assert_string_equal(tokenizer_token_text(t, 5), "<0x65>");
    tokenizer_free(t);

    t = small_tokenizer("{" BYTE_LEVEL ",'model':{'vocab':{" LETTERS "},'merges':[]}}");
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
    struct tokenizer *t = small_tokenizer(
        "{" BYTE_LEVEL ",'added_tokens':[" ADDED(10, "<x", "'special':false") "," ADDED(
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
    struct tokenizer *t = small_tokenizer("{" BYTE_LEVEL ",'added_tokens':[" ADDED(
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
    struct tokenizer *t = small_tokenizer(
        "{" BYTE_LEVEL ",'added_tokens':[" ADDED(10, "L", "'lstrip':true") "," ADDED(
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
    struct tokenizer *t =
        small_tokenizer("{'normalizer':{'type':'NFC'}," BYTE_LEVEL
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

static void small_vocabulary_matches_its_vectors(void **state)
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
static void nfc_quick_check_is_right(void **state)
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
        length += count;
        /* The first ten bytes are four characters: each comes with its last byte, at once. */
        static const size_t ready[] = { 1, 1, 1, 1, 5, 5, 7, 7, 7, 10 };
        if (i < COUNT_OF(ready)) assert_int_equal(length, ready[i]);
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

/* ---------------------------------------------------------------------- threads */

struct thread_work {
    const char *text;
    size_t length;
    struct token_list ids;
};

static void *encode_in_thread(void *argument)
{
    struct thread_work *work = argument;
    mf_error error;
    mf_status status =
        tokenizer_encode(&work->ids, mini, work->text, work->length, SPECIAL_PARSE, &error);
    return status == MF_OK ? work : NULL;
}

/* What is remembered about tokens is found out by all at once here. */
static void threads_may_share_a_tokenizer(void **state)
{
    (void)state;
    enum { THREADS = 4, CHARACTERS_EACH = 20000 };
    struct random_text random = { 9 };
    char *text = malloc(CHARACTERS_EACH * UTF8_MAX);
    assert_non_null(text);
    size_t length = random_string(text, &random, CHARACTERS_EACH, true);
    struct tokenizer *before = mini;
    must(tokenizer_open_new(&mini, &files_posix, mini_path, &why)); /* remembers nothing yet */
    struct thread_work work[THREADS] = { { 0 } };
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) {
        work[i].text = text;
        work[i].length = length;
        assert_int_equal(pthread_create(&threads[i], NULL, encode_in_thread, &work[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        void *result;
        assert_int_equal(pthread_join(threads[i], &result), 0);
        assert_ptr_equal(result, &work[i]);
    }
    struct token_list ids = vectors_encode(before, text, length, SPECIAL_PARSE);
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(work[i].ids.count, ids.count);
        assert_memory_equal(work[i].ids.ids, ids.ids, ids.count * sizeof *ids.ids);
        token_list_free(&work[i].ids);
    }
    token_list_free(&ids);
    tokenizer_free(mini);
    mini = before;
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(merges_go_by_rank_then_from_the_left),
        cmocka_unit_test(both_notations_of_merges_are_equal),
        cmocka_unit_test(whole_pieces_may_need_no_merges),
        cmocka_unit_test(unknown_text_falls_back_to_bytes),
        cmocka_unit_test(added_tokens_are_leftmost_and_longest),
        cmocka_unit_test(a_special_token_cannot_be_forged),
        cmocka_unit_test(added_tokens_strip_and_stand_alone),
        cmocka_unit_test(added_tokens_may_be_looked_for_after_nfc),
        cmocka_unit_test(small_vocabulary_matches_its_vectors),
        cmocka_unit_test(pieces_are_merged_as_defined),
        cmocka_unit_test(any_bytes_come_back),
        cmocka_unit_test(text_comes_back_in_nfc),
        cmocka_unit_test(nfc_leaves_other_bytes_alone),
        cmocka_unit_test(nfc_quick_check_is_right),
        cmocka_unit_test(a_stream_gives_whole_characters),
        cmocka_unit_test(time_grows_with_the_text),
        cmocka_unit_test(threads_may_share_a_tokenizer),
    };
    return cmocka_run_group_tests(tests, open_mini, close_mini);
}
