/* read_stage.h: a few bounce buffers between the disk and a read's destination.
 *
 *     disk ─▶ bounce buffer ─▶ copied by the thread that collects the read ─▶ destination
 *
 * In a virtual machine, reads into memory that has not been a read's target for some seconds are
 * much slower than reads into recently used memory: the host has to look up its pages again
 * (docs/notebook/experiments.md).  A cache of gigabytes is nearly always in the first state, a few buffers
 * are always in the second.  On other machines the copy is lost time, so both ways are measured
 * while reads go on:
 *
 *     direct ─▶ staged ─▶ direct ─▶ staged ─▶ SETTLED on the faster way; on direct reads
 *                           ▲                 │  unless staging gains at least 10 %
 *                           └── at intervals ─┘  earlier measurements then count half
 *
 * Each phase first ignores some reads, because reads of the phase before are still in flight.  A
 * rate is bytes per second in which at least one read was in flight.
 *
 * Threads: called with the reader's lock held, except read_stage_copy. */
#ifndef IO_READ_STAGE_H
#define IO_READ_STAGE_H

#include "base/common.h"
#include "moeflux.h"

enum { STAGE_BUFFERS_MAX = 24, STAGE_PHASES = 4 };

/* What one way has achieved in its phases. */
struct stage_rate {
    uint64_t bytes;
    double seconds;
};

struct read_stage {
    uint8_t *memory; /* NULL: staging is off */
    size_t memory_bytes, buffer_bytes;
    uint8_t *free[STAGE_BUFFERS_MAX];
    uint32_t free_count;

    bool active;       /* new reads are staged */
    uint32_t phase;    /* STAGE_PHASES: settled */
    uint32_t reads;    /* of this phase, or since it settled */
    uint32_t interval; /* reads from settling to the next measurement */
    struct stage_rate phase_start;
    struct stage_rate rates[2]; /* [active] */
};

/* `count` buffers for reads of at most `read_bytes`, a multiple of the alignment of direct reads.
 * If the memory cannot be allocated, staging stays off. */
void read_stage_init(struct read_stage *out, const mf_allocator *allocator, size_t read_bytes,
                     size_t count);
void read_stage_free(struct read_stage *stage, const mf_allocator *allocator);

/* A buffer for a read; NULL: read directly into the destination. */
uint8_t *read_stage_take(struct read_stage *stage, size_t read_bytes);
void read_stage_give_back(struct read_stage *stage, uint8_t *buffer); /* NULL is legal */

/* Whether no measurement is under way. */
static inline bool read_stage_is_settled(const struct read_stage *stage)
{
    return stage->phase == STAGE_PHASES;
}

/* Call after every finished read; `bytes` and `seconds` are totals since the reader was made. */
void read_stage_note(struct read_stage *stage, uint64_t bytes, double seconds);

/* Copies with non-temporal stores: the destination is not needed in the CPU's caches yet. */
void read_stage_copy(uint8_t *out, const uint8_t *buffer, size_t bytes);

#endif
