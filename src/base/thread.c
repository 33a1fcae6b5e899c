#include "base/thread.h"

#include "base/common.h"

#include <signal.h>

int thread_start(pthread_t *out, const pthread_attr_t *attributes, void *(*run)(void *),
                 void *argument)
{
    static const int own[] = { SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS };
    sigset_t blocked, before;
    sigfillset(&blocked);
    for (size_t i = 0; i < COUNT_OF(own); i++) sigdelset(&blocked, own[i]);
    /* A thread begins with the mask of the one that starts it. */
    int problem = pthread_sigmask(SIG_BLOCK, &blocked, &before);
    if (problem) return problem;
    problem = pthread_create(out, attributes, run, argument);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return problem;
}
