#include "support/thread_signals.h"

#include "support/test.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

static atomic_int taken;

static void take(int signal_number)
{
    (void)signal_number;
    atomic_fetch_add(&taken, 1);
}

void assert_other_threads_take_no_signals(void)
{
    struct sigaction action = { .sa_handler = take }, before;
    sigset_t ours, pending;
    sigemptyset(&action.sa_mask);
    sigemptyset(&ours);
    sigaddset(&ours, SIGUSR1);
    atomic_store(&taken, 0);
    assert_int_equal(sigaction(SIGUSR1, &action, &before), 0);
    assert_int_equal(pthread_sigmask(SIG_BLOCK, &ours, NULL), 0);
    assert_int_equal(kill(getpid(), SIGUSR1), 0);
    /* kill() has chosen a thread if any accepts the signal; give it time to run the handler. */
    nanosleep(&(struct timespec){ .tv_nsec = 5 * 1000 * 1000 }, NULL);
    sigpending(&pending);
    assert_true(sigismember(&pending, SIGUSR1));
    assert_int_equal(taken, 0);
    pthread_sigmask(SIG_UNBLOCK, &ours, NULL);
    assert_int_equal(taken, 1);
    sigaction(SIGUSR1, &before, NULL);
}
