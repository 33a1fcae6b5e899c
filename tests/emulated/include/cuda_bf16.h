/* cuda_bf16.h: bf16 of the emulated device, converted by quant/format.h. */
#ifndef EMULATED_CUDA_BF16_H
#define EMULATED_CUDA_BF16_H

#include <stdint.h>

extern "C" uint16_t bf16_from_f32(float value);

struct alignas(4) __nv_bfloat162 {
    uint16_t x, y;
};

inline __nv_bfloat162 __floats2bfloat162_rn(float x, float y)
{
    return { bf16_from_f32(x), bf16_from_f32(y) };
}

#endif
