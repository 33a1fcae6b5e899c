/* base/log: notes reach the callback whole or cut; without a callback they are dropped. */
#include "support/test.h"

#include "base/log.h"

#include <stdio.h>
#include <string.h>

struct heard {
    unsigned count;
    mf_log_level level;
    char text[4096];
};

static void listen(void *user, mf_log_level level, const char *text)
{
    struct heard *heard = user;
    heard->count++;
    heard->level = level;
    snprintf(heard->text, sizeof heard->text, "%s", text);
}

static void a_note_arrives_formatted(void **state)
{
    (void)state;
    struct heard heard = { 0 };
    struct logger logger = { listen, &heard };
    log_note(&logger, MF_LOG_WARNING, "%d of %s", 3, "four");
    assert_int_equal(heard.count, 1);
    assert_int_equal(heard.level, MF_LOG_WARNING);
    assert_string_equal(heard.text, "3 of four");
}

/* A note without a callback is not even formatted: %n would store the length. */
static void without_a_callback_a_note_is_not_formatted(void **state)
{
    (void)state;
    struct heard heard = { 0 };
    struct logger deaf = { .user = &heard };
    int formatted = -1;
    log_note(NULL, MF_LOG_INFO, "12345%n", &formatted);
    log_note(&deaf, MF_LOG_INFO, "12345%n", &formatted);
    assert_int_equal(formatted, -1);
    assert_int_equal(heard.count, 0);
    log_note(&(struct logger){ listen, &heard }, MF_LOG_INFO, "12345%n", &formatted);
    assert_int_equal(formatted, 5);
    assert_int_equal(heard.count, 1);
}

static void a_long_note_is_cut(void **state)
{
    (void)state;
    struct heard heard = { 0 };
    struct logger logger = { listen, &heard };
    log_note(&logger, MF_LOG_INFO, "%3000d", 7);
    size_t length = strlen(heard.text);
    assert_true(length > 500 && length < 3000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_note_arrives_formatted),
        cmocka_unit_test(without_a_callback_a_note_is_not_formatted),
        cmocka_unit_test(a_long_note_is_cut),
    };
    return cmocka_run_group_tests_name("log", tests, NULL, NULL);
}
