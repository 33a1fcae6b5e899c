/* base/thread: which signals a thread of the library can be asked to handle. */
#include "support/test.h"

#include "base/thread.h"

#include <errno.h>
#include <signal.h>

static void *look(void *argument)
{
    pthread_sigmask(SIG_BLOCK, NULL, argument);
    return argument;
}

static sigset_t mask_of_a_thread(void)
{
    sigset_t mask;
    pthread_t thread;
    void *result;
    assert_int_equal(thread_start(&thread, NULL, look, &mask), 0);
    assert_int_equal(pthread_join(thread, &result), 0);
    assert_ptr_equal(result, &mask);
    return mask;
}

static void signals_of_the_process_are_blocked(void **state)
{
    (void)state;
    static const int numbers[] = { SIGHUP,  SIGINT,  SIGQUIT, SIGPIPE, SIGALRM,  SIGTERM,
                                   SIGUSR1, SIGUSR2, SIGCHLD, SIGCONT, SIGWINCH, SIGTSTP };
    sigset_t mask = mask_of_a_thread();
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        assert_true(sigismember(&mask, numbers[i]));
    assert_true(sigismember(&mask, SIGRTMIN));
}

static void signals_of_a_crash_are_not_blocked(void **state)
{
    (void)state;
    static const int numbers[] = { SIGSEGV, SIGBUS, SIGFPE, SIGILL };
    sigset_t mask = mask_of_a_thread();
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        assert_false(sigismember(&mask, numbers[i]));
}

static void the_caller_s_mask_stays(void **state)
{
    (void)state;
    sigset_t set, before, after;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR2);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    pthread_sigmask(SIG_BLOCK, NULL, &before);
    (void)mask_of_a_thread();
    pthread_sigmask(SIG_BLOCK, NULL, &after);
    for (int number = 1; number < SIGRTMAX; number++)
        assert_int_equal(sigismember(&before, number), sigismember(&after, number));
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
}

/* A stack that no machine has. */
static void the_caller_s_mask_stays_after_a_failure(void **state)
{
    (void)state;
    pthread_attr_t huge;
    pthread_t thread;
    sigset_t mask;
    pthread_attr_init(&huge);
    pthread_attr_setstacksize(&huge, (size_t)1 << 60);
    assert_int_equal(thread_start(&thread, &huge, look, &mask), EAGAIN);
    pthread_attr_destroy(&huge);
    pthread_sigmask(SIG_BLOCK, NULL, &mask);
    assert_false(sigismember(&mask, SIGUSR1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(signals_of_the_process_are_blocked),
        cmocka_unit_test(signals_of_a_crash_are_not_blocked),
        cmocka_unit_test(the_caller_s_mask_stays),
        cmocka_unit_test(the_caller_s_mask_stays_after_a_failure),
    };
    return cmocka_run_group_tests_name("thread", tests, NULL, NULL);
}
