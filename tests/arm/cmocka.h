/* cmocka.h: what the kernels' tests use of CMocka, for machines that have no package of it.
 * The real one is used everywhere else; output and exit status are alike. */
#ifndef ARM_CMOCKA_H
#define ARM_CMOCKA_H

#include <inttypes.h>
#include <setjmp.h>
#include <stdio.h>
#include <string.h>

struct CMUnitTest {
    const char *name;
    void (*run)(void **state);
};

#define cmocka_unit_test(function)                                                                 \
    {                                                                                              \
#function, function                                                                        \
    }

#define print_message(...) printf(__VA_ARGS__)
#define print_error(...)   fprintf(stderr, __VA_ARGS__)

static jmp_buf cmocka_test_end;

__attribute__((noreturn)) static inline void _fail(const char *file, int line)
{
    print_error("%s:%d: error: Failure!\n", file, line);
    longjmp(cmocka_test_end, 1);
}

static inline void cmocka_check(int holds, const char *text, const char *file, int line)
{
    if (holds) return;
    print_error("%s does not hold\n", text);
    _fail(file, line);
}
#define assert_true(c)               cmocka_check((c) ? 1 : 0, #c, __FILE__, __LINE__)
#define assert_false(c)              cmocka_check((c) ? 0 : 1, "not " #c, __FILE__, __LINE__)
#define assert_null(p)               assert_true((p) == NULL)
#define assert_non_null(p)           assert_true((p) != NULL)
#define assert_ptr_equal(a, b)       assert_true((const volatile void *)(a) == (const volatile void *)(b))
#define assert_string_equal(a, b)    assert_true(strcmp((a), (b)) == 0)
#define assert_memory_equal(a, b, n) assert_true(memcmp((a), (b), (n)) == 0)

static inline void cmocka_check_equal(intmax_t a, intmax_t b, const char *file, int line)
{
    if (a == b) return;
    print_error("%" PRIdMAX " != %" PRIdMAX "\n", a, b);
    _fail(file, line);
}
#define assert_int_equal(a, b) cmocka_check_equal((intmax_t)(a), (intmax_t)(b), __FILE__, __LINE__)

static inline int cmocka_run(const struct CMUnitTest *tests, size_t count)
{
    volatile int failed = 0;
    for (volatile size_t i = 0; i < count; i++) {
        void *state = NULL;
        printf("[ RUN      ] %s\n", tests[i].name);
        fflush(stdout);
        if (setjmp(cmocka_test_end) == 0) {
            tests[i].run(&state);
            printf("[       OK ] %s\n", tests[i].name);
        } else {
            printf("[  FAILED  ] %s\n", tests[i].name);
            failed++;
        }
    }
    return failed;
}
#define cmocka_run_group_tests(tests, set_up, tear_down)                                           \
    ((void)(set_up), (void)(tear_down), cmocka_run((tests), sizeof(tests) / sizeof((tests)[0])))

#endif
