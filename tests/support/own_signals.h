/* own_signals.h: does a signal of the process reach only those threads that want it? */
#ifndef SUPPORT_OWN_SIGNALS_H
#define SUPPORT_OWN_SIGNALS_H

/* Sends this process a signal that the calling thread blocks for the moment: fails when any
 * other thread takes it, and when the calling thread does not get it in the end. */
void assert_signals_come_to_this_thread_alone(void);

#endif
