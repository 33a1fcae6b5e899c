/* thread.h: threads that the embedding program does not notice.
 *
 * A signal of the process is taken by any thread that does not block it.  The handlers of the
 * program that embeds the library know nothing of our threads, and some are not made for two
 * at a time (libedit's, for one): so no handler ever runs on a thread of ours. */
#ifndef BASE_THREAD_H
#define BASE_THREAD_H

#include <pthread.h>

/* pthread_create, and the new thread blocks every signal, except those that an instruction of
 * its own causes (SIGSEGV, SIGBUS, …): blocked, these would end the process without a word to
 * its crash handler.  The mask of the caller is as before.  0, or an errno value. */
int thread_start(pthread_t *out, const pthread_attr_t *attributes, void *(*run)(void *),
                 void *argument);

#endif
