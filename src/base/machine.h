/* machine.h: CPU features, cores and memory of this machine.  No other code probes them. */
#ifndef BASE_MACHINE_H
#define BASE_MACHINE_H

#include "base/common.h"

struct machine {
    unsigned core_count;      /* available to this process: affinity and CPU quota */
    uint64_t memory_bytes;    /* total, or the limit of the control group */
    uint64_t available_bytes; /* free or reclaimable */
    size_t page_bytes;
    bool
        steady_ticks; /* the CPU's counter has a constant rate and is synchronised over all cores */
    bool avx2;        /* AVX2, FMA and F16C */
    bool avx_vnni;    /* products of bytes in 256-bit registers */
    bool avx512;      /* F, BW, DQ, VL, CD */
    bool avx512_vnni;
    bool avx512_bf16;
    bool quick_bf16; /* … and a bf16 dot product of pairs is as fast as a float multiply */
    bool avx512_vbmi;
    bool amx_int8; /* supported by the CPU and permitted by the kernel */
    bool amx_bf16;
    bool neon;
    bool neon_dotprod; /* dot products of bytes */
    bool neon_f16;     /* half-precision arithmetic */
    bool neon_i8mm;
};

void machine_probe(struct machine *out);

#endif
