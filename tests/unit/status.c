/* base/status: the error list, and what `fail` leaves behind. */
#include "support/test.h"

#include "base/status.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static void every_status_has_its_own_name_and_text(void **state)
{
    (void)state;
    const mf_status all[] = {
#define VALUE(name, value, text) name,
        MF_STATUS_LIST(VALUE)
#undef VALUE
    };
    size_t count = sizeof all / sizeof all[0];
    for (size_t i = 0; i < count; i++) {
        assert_true(all[i] <= 0);
        assert_true(strlen(mf_status_text(all[i])) > 0);
        for (size_t j = i + 1; j < count; j++) {
            assert_int_not_equal(all[i], all[j]);
            assert_string_not_equal(mf_status_name(all[i]), mf_status_name(all[j]));
            assert_string_not_equal(mf_status_text(all[i]), mf_status_text(all[j]));
        }
    }
    assert_string_equal(mf_status_name(MF_ERR_CONTEXT_FULL), "MF_ERR_CONTEXT_FULL");
}

static void an_unknown_status_still_has_a_name(void **state)
{
    (void)state;
    assert_string_equal(mf_status_name((mf_status)-9999), "MF_ERR_UNKNOWN");
    assert_string_equal(mf_status_text((mf_status)1), "unknown status");
}

static void fail_fills_status_text_and_origin(void **state)
{
    (void)state;
    mf_error why = { 0 };
    int line = __LINE__ + 1;
    mf_status status = fail(&why, MF_ERR_FORMAT, "tensor %s has rank %d", "head", 9);
    char origin[64];
    snprintf(origin, sizeof origin, "status.c:%d", line);
    assert_int_equal(status, MF_ERR_FORMAT);
    assert_int_equal(why.status, MF_ERR_FORMAT);
    assert_string_equal(why.text, "tensor head has rank 9");
    assert_string_equal(why.origin, origin);
}

static void error_argument_may_be_null(void **state)
{
    (void)state;
    assert_int_equal(fail(NULL, MF_ERR_IO, "%d", 1), MF_ERR_IO);
    assert_int_equal(fail_errno(NULL, MF_ERR_IO, ENOENT, "%d", 1), MF_ERR_IO);
    assert_int_equal(fail_memory(NULL, 1), MF_ERR_MEMORY);
}

static void fail_errno_appends_the_reason(void **state)
{
    (void)state;
    mf_error why;
    fail_errno(&why, MF_ERR_IO, ENOENT, "%s cannot be opened", "x.json");
    assert_string_equal(why.text, "x.json cannot be opened: No such file or directory");
}

static void a_long_text_is_cut_and_terminated(void **state)
{
    (void)state;
    mf_error why;
    char name[2000];
    memset(name, 'n', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    fail(&why, MF_ERR_IO, "%s", name);
    assert_int_equal(strlen(why.text), sizeof why.text - 1);
    fail_errno(&why, MF_ERR_IO, ENOENT, "%s", name);
    assert_int_equal(strlen(why.text), sizeof why.text - 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_status_has_its_own_name_and_text),
        cmocka_unit_test(an_unknown_status_still_has_a_name),
        cmocka_unit_test(fail_fills_status_text_and_origin),
        cmocka_unit_test(error_argument_may_be_null),
        cmocka_unit_test(fail_errno_appends_the_reason),
        cmocka_unit_test(a_long_text_is_cut_and_terminated),
    };
    return cmocka_run_group_tests_name("status", tests, NULL, NULL);
}
