/* test.h: what a CMocka program includes first, in the order CMocka wants. */
#ifndef SUPPORT_TEST_H
#define SUPPORT_TEST_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>

#include <cmocka.h>

/* The name `fail` is base/status.h's; a test says fail_msg("…", …). */
#undef fail
#undef fail_msg
#define fail_msg(...) (print_error(__VA_ARGS__), print_error("\n"), _fail(__FILE__, __LINE__))

/* CMocka leaves a failing test with longjmp, which the static analyzer cannot know. */
#ifdef __clang_analyzer__
#include <stdlib.h>
#undef assert_true
#undef assert_false
#undef assert_null
#undef assert_non_null
#undef fail_msg
#define fail_msg(...)      (print_error(__VA_ARGS__), abort())
#define assert_true(c)     ((c) ? (void)0 : abort())
#define assert_false(c)    ((c) ? abort() : (void)0)
#define assert_null(c)     ((c) ? abort() : (void)0)
#define assert_non_null(c) ((c) ? (void)0 : abort())
#endif

/* The exit status of a test that could not be run: say why on stderr before. */
enum { EXIT_SKIPPED = 77 };

#endif
