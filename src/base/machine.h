/* machine.h: what this computer can do.  The only place that asks. */
#ifndef BASE_MACHINE_H
#define BASE_MACHINE_H

#include "base/common.h"

struct machine {
    unsigned core_count;      /* that this process may use */
    uint64_t memory_bytes;    /* in all, a control group's limit respected */
    uint64_t available_bytes; /* free or quickly made free */
    size_t page_bytes;
    bool steady_ticks; /* the CPU has a counter that is a clock: as fast always, on all cores */
    bool avx2;         /* AVX2, FMA and F16C */
    bool avx_vnni;     /* products of bytes in 256-bit registers */
    bool avx512;       /* F, BW, DQ, VL, CD */
    bool avx512_vnni;
    bool avx512_bf16;
    bool quick_bf16; /* … whose products of pairs take no longer than one of floats */
    bool avx512_vbmi;
    bool amx_int8; /* tiles present, and the kernel lets this process use them */
    bool amx_bf16;
    bool neon;
    bool neon_dotprod; /* of bytes */
    bool neon_f16;     /* arithmetic */
    bool neon_i8mm;
};

void machine_probe(struct machine *out);

#endif
