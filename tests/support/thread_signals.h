/* thread_signals.h: checks that threads of the library take no signals of the process, which would
 * otherwise run the program's handlers on them (tests of thread_pool and async_read). */
#ifndef SUPPORT_THREAD_SIGNALS_H
#define SUPPORT_THREAD_SIGNALS_H

/* Blocks SIGUSR1 on the calling thread, sends it to the process and unblocks it.  Fails the test if
 * another thread takes the signal, or if the calling thread does not get it after unblocking.
 * Call it on the main thread while the threads under test run. */
void assert_other_threads_take_no_signals(void);

#endif
