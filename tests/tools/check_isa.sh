#!/bin/sh
. "$MOEFLUX_SOURCE/tests/tools/scratch.sh"

# FILE holds the lines; check_isa gives STATUS and prints TEXT.
judge() # file status text lines...
{
    file=$1 wanted=$2 text=$3
    shift 3
    mkdir -p "${file%/*}"
    printf '%s\n' "$@" >"$file"
    expect "$wanted" "$text" tools/check_isa.sh
    rm "$file"
}

judge src/kernels/a.c 0 '' '#include "kernels/simd/simd.h"' 'lanes v = lanes_load(p);' 'int my_mm_x;'
judge src/kernels/a.c 1 'src/kernels/a.c:2: __AVX2__' '' '#if defined(__AVX2__)'
judge src/kernels/a.c 1 'asks for an instruction set' '#ifdef __ARM_NEON'
judge src/kernels/a.c 1 'src/kernels/a.c:1: ' '__m512i v = _mm512_setzero_si512();'
judge src/kernels/a.c 1 'intrinsics belong' 'x = (_mm_add_ps(a, b));'
judge src/kernels/a.c 1 'intrinsics belong' 'float32x4_t v;'
judge src/kernels/a.c 1 'intrinsics belong' 'x = vld1q_u8(p);'
judge src/kernels/simd/a.h 0 '' '__m256 v = _mm256_setzero_ps();'
judge src/kernels/simd/a.h 1 'asks for an instruction set' '#if defined(__AVXVNNI__)'
judge src/kernels/simd/simd.h 0 '' '#if defined(__AVXVNNI__)'
judge src/kernels/prefill/amx.c 0 '' '_tile_zero(0);'
judge src/kernels/prefill/amx.c 1 'asks for an instruction set' '#if defined(__AMX_BF16__)'
judge apps/a.c 1 'intrinsics belong' '_mm_sfence();'
exit $status
