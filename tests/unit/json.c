/* base/json: what is accepted, and that every refusal names file and field. */
#include "support/test.h"

#include "base/file.h"
#include "base/json.h"

#include <stdlib.h>
#include <unistd.h>

static json_t *parse(const char *text)
{
    json_t *value = NULL;
    mf_error why;
    if (json_parse_new(&value, text, strlen(text), "t", &why) != MF_OK) fail_msg("%s", why.text);
    return value;
}

static void malformed_text_is_refused_with_its_place(void **state)
{
    (void)state;
    const char *const bad[] = {
        "",         "{",          "{\"a\":}",          "[1,]",
        "nul",      "{\"a\":1}x", "\"\\ud800\"",       "[1e999]",
        "\"\xff\"", "[01]",       "{\"a\":1,\"a\":2}",
    };
    for (size_t i = 0; i < COUNT_OF(bad); i++) {
        json_t *value = (json_t *)&value;
        mf_error why = { 0 };
        mf_status status = json_parse_new(&value, bad[i], strlen(bad[i]), "config.json", &why);
        assert_int_equal(status, MF_ERR_FORMAT);
        assert_null(value);
        assert_non_null(strstr(why.text, "config.json is not valid JSON: line 1"));
    }
}

static void deep_nesting_is_refused_not_followed(void **state)
{
    (void)state;
    enum { DEPTH = 1000 * 1000 };
    char *text = malloc(DEPTH);
    memset(text, '[', DEPTH);
    json_t *value;
    assert_int_equal(json_parse_new(&value, text, DEPTH, "t", NULL), MF_ERR_FORMAT);
    free(text);
}

static void counts_are_whole_numbers_in_range(void **state)
{
    (void)state;
    json_t *object = parse("{\"n\":7,\"zero\":0,\"minus\":-1,\"half\":7.5,\"text\":\"7\","
                           "\"none\":null,\"big\":9223372036854775807}");
    uint64_t out = 42;
    mf_error why;
    assert_int_equal(json_need_count(&out, object, "n", 1, 7, "t", &why), MF_OK);
    assert_int_equal(out, 7);
    assert_int_equal(json_need_count(&out, object, "big", 0, UINT64_MAX, "t", &why), MF_OK);
    assert_int_equal(out, INT64_MAX);

    out = 42;
    assert_int_equal(json_need_count(&out, object, "n", 8, 9, "t", &why), MF_ERR_FORMAT);
    assert_string_equal(why.text, "t: n is 7, from 8 to 9 was expected");
    assert_int_equal(json_need_count(&out, object, "minus", 0, 9, "t", &why), MF_ERR_FORMAT);
    assert_string_equal(why.text, "t: minus is -1, from 0 to 9 was expected");
    assert_int_equal(json_need_count(&out, object, "half", 0, 9, "t", &why), MF_ERR_FORMAT);
    assert_string_equal(why.text, "t: half is a fraction, a whole number was expected");
    assert_int_equal(json_need_count(&out, object, "text", 0, 9, "t", &why), MF_ERR_FORMAT);
    assert_int_equal(json_need_count(&out, object, "none", 0, 9, "t", &why), MF_ERR_FORMAT);
    assert_int_equal(json_need_count(&out, object, "absent", 0, 9, "t", &why), MF_ERR_FORMAT);
    assert_string_equal(why.text, "t: absent is missing");
    assert_int_equal(out, 42);
    json_decref(object);
}

static void an_absent_or_null_field_keeps_the_default(void **state)
{
    (void)state;
    json_t *object = parse("{\"none\":null}");
    const char *const keys[] = { "none", "absent" };
    for (size_t i = 0; i < COUNT_OF(keys); i++) {
        uint64_t count = 42;
        double real = 0.5;
        bool flag = true;
        const char *text = "default";
        assert_int_equal(json_maybe_count(&count, object, keys[i], 0, 9, "t", NULL), MF_OK);
        assert_int_equal(json_maybe_real(&real, object, keys[i], "t", NULL), MF_OK);
        assert_int_equal(json_maybe_flag(&flag, object, keys[i], "t", NULL), MF_OK);
        assert_int_equal(json_maybe_text(&text, object, keys[i], "t", NULL), MF_OK);
        assert_int_equal(count, 42);
        assert_true(real == 0.5);
        assert_true(flag);
        assert_string_equal(text, "default");
    }
    json_decref(object);
}

static void other_kinds_are_read_or_refused(void **state)
{
    (void)state;
    json_t *object = parse("{\"r\":1.5,\"i\":2,\"f\":false,\"s\":\"x\",\"l\":[]}");
    double real;
    bool flag = true;
    const char *text;
    mf_error why;
    assert_int_equal(json_maybe_real(&real, object, "r", "t", &why), MF_OK);
    assert_true(real == 1.5);
    assert_int_equal(json_maybe_real(&real, object, "i", "t", &why), MF_OK);
    assert_true(real == 2.0);
    assert_int_equal(json_maybe_flag(&flag, object, "f", "t", &why), MF_OK);
    assert_false(flag);
    assert_int_equal(json_maybe_text(&text, object, "s", "t", &why), MF_OK);
    assert_string_equal(text, "x");

    assert_int_equal(json_maybe_real(&real, object, "s", "t", &why), MF_ERR_FORMAT);
    assert_string_equal(why.text, "t: s is a string, a number was expected");
    assert_int_equal(json_maybe_flag(&flag, object, "i", "t", &why), MF_ERR_FORMAT);
    assert_string_equal(why.text, "t: i is a whole number, true or false was expected");
    assert_int_equal(json_maybe_text(&text, object, "l", "t", &why), MF_ERR_FORMAT);
    assert_string_equal(why.text, "t: l is an array, a string was expected");
    json_decref(object);
}

static void a_file_must_hold_an_object(void **state)
{
    (void)state;
    char path[] = "/tmp/moeflux-json-XXXXXX";
    int descriptor = mkstemp(path);
    assert_true(descriptor >= 0);
    assert_int_equal(write(descriptor, "[1, 2]", 6), 6);

    json_t *value = (json_t *)&value;
    mf_error why;
    assert_int_equal(json_read_file_new(&value, &files_posix, path, 100, &why), MF_ERR_FORMAT);
    assert_null(value);
    assert_non_null(strstr(why.text, "holds an array, an object was expected"));

    assert_int_equal(pwrite(descriptor, "{\"a\":1}", 7, 0), 7);
    assert_int_equal(json_read_file_new(&value, &files_posix, path, 100, &why), MF_OK);
    assert_int_equal(json_integer_value(json_object_get(value, "a")), 1);
    json_decref(value);
    close(descriptor);
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(malformed_text_is_refused_with_its_place),
        cmocka_unit_test(deep_nesting_is_refused_not_followed),
        cmocka_unit_test(counts_are_whole_numbers_in_range),
        cmocka_unit_test(an_absent_or_null_field_keeps_the_default),
        cmocka_unit_test(other_kinds_are_read_or_refused),
        cmocka_unit_test(a_file_must_hold_an_object),
    };
    return cmocka_run_group_tests_name("json", tests, NULL, NULL);
}
