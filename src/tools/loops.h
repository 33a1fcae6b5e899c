/* loops.h: the tightest loops an instruction set allows, to see what a core can do.
 *
 * loops.c is compiled once for each kernel set; LOOP_SET names the copy.
 * The functions do their work for nothing: results are returned only so that the
 * compiler cannot leave it out. */
#ifndef TOOLS_LOOPS_H
#define TOOLS_LOOPS_H

#include "base/common.h"

struct loops {
    const char *name;
    /* Reads `bytes` (a multiple of 4 KiB) once, in order. */
    uint64_t (*read)(const void *memory, size_t bytes);
    /* Independent multiply-adds on f32 registers; returns something of no interest. */
    float (*multiply_add)(size_t rounds);
    size_t flops_per_round;
};

extern const struct loops loops_generic;
extern const struct loops loops_avx2;
extern const struct loops loops_avx512;
extern const struct loops loops_neon;

/* Products of tiles that stay in the tile registers.  The machine must have them, and
 * the process the permission (base/machine asks for it). */
void loops_amx_bf16(size_t rounds);
void loops_amx_int8(size_t rounds);
/* Operations (a multiply and an add are two) of one round. */
enum {
    AMX_BF16_OPS_PER_ROUND = 4 * 2 * 16 * 16 * 32,
    AMX_INT8_OPS_PER_ROUND = 4 * 2 * 16 * 16 * 64
};

/* Products of pairs of bf16 numbers that stay in registers; the machine must have them. */
float loops_bf16(size_t rounds);
enum { BF16_SUMS = 16, BF16_OPS_PER_ROUND = BF16_SUMS * 2 * 32 };

#endif
