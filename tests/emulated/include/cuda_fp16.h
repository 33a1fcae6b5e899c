/* cuda_fp16.h: halves of the emulated device, converted by quant/format.h. */
#ifndef EMULATED_CUDA_FP16_H
#define EMULATED_CUDA_FP16_H

#include <stdint.h>

extern "C" float f32_from_f16(uint16_t bits);
extern "C" uint16_t f16_from_f32(float value);

struct __half {
    uint16_t bits;
};
typedef __half half;

inline float __half2float(__half x)
{
    return f32_from_f16(x.bits);
}
inline __half __float2half_rn(float x)
{
    return { f16_from_f32(x) };
}
inline __half __ushort_as_half(unsigned short bits)
{
    return { bits };
}
inline unsigned short __half_as_ushort(__half x)
{
    return x.bits;
}

#endif
