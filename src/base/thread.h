/* thread.h: threads that take no signals.
 *
 * A signal sent to the process is delivered to any thread that does not block it.  Handlers of the
 * embedding program may assume its own threads (libedit's is not reentrant), so the library's
 * threads block signals and no handler runs on them. */
#ifndef BASE_THREAD_H
#define BASE_THREAD_H

#include <pthread.h>

/* pthread_create with all signals blocked in the new thread, except those that an instruction
 * raises (SIGSEGV, SIGBUS, …): if these are blocked, the process dies without running its crash
 * handler.  The caller's mask is unchanged.  Returns 0 or an errno value. */
int thread_start(pthread_t *out, const pthread_attr_t *attributes, void *(*run)(void *),
                 void *argument);

#endif
