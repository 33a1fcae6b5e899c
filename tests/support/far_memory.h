/* far_memory.h: pages and recurrent states as a device has them: the addresses that it hands out are
 * not mapped, so that code which reads or writes them as the host's own memory crashes at once. */
#ifndef SUPPORT_FAR_MEMORY_H
#define SUPPORT_FAR_MEMORY_H

#include "backend/backend.h"

struct far_memory {
    struct state_memory memory;
    uint8_t *far, *near; /* the addresses that are handed out, and where their contents are */
    size_t used, live_count;
    size_t fails_after; /* copies and clears until one fails; 0: none does */
};

void far_memory_open(struct far_memory *far);
/* Fails the test where something has not been released. */
void far_memory_close(struct far_memory *far);

#endif
