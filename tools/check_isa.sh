#!/bin/sh
# check_isa.sh: instruction sets are chosen in src/kernels/simd/simd.h and by the build, so that ops
# can be read without one in mind.  Intrinsics and vector types of a CPU are found only in
# src/kernels/simd and in the files listed here, each for one instruction set; nothing but simd.h
# asks the compiler for an instruction set.  Every offence is printed as file:line.
cd "$(dirname "$0")/.." || exit 1
tools/sources.sh src apps tests | xargs awk '
BEGIN {
    # Prefill and attention in bf16, with vectors and on tiles.
    one_set["src/kernels/prefill/bf16.c"]
    one_set["src/kernels/prefill/bf16_packs.h"]
    one_set["src/kernels/prefill/panels.c"]
    one_set["src/kernels/prefill/panel_units.h"]
    one_set["src/kernels/prefill/amx.c"]
    one_set["src/kernels/prefill/amx_tiles.h"]
    one_set["src/kernels/attention/bf16.h"]
    one_set["src/kernels/attention/bf16.c"]
    one_set["src/kernels/attention/amx.c"]
    # The most that a core can do, in its own instructions.
    one_set["src/tools/loops_amx.c"]
    one_set["src/tools/loops_bf16.c"]
    # Not kernels: the same, and a copy past the caches, each with a plain loop beside it.
    any_set["src/tools/loops.c"]
    any_set["src/io/read_stage.c"]
    any_set["src/kernels/simd/simd.h"]
    # Decode with registers of 32 and of 64 bytes; VNNI changes single instructions of both.
    any_set["src/kernels/decode/dot_avx2.h"]
    any_set["src/kernels/decode/dot_avx512.h"]
}
function offence(text) {
    printf "%s:%d: %s\n", FILENAME, FNR, text
    failed = 1
}
FILENAME in any_set { next }
match($0, /__(AVX|SSE|FMA__|F16C__|AMX|ARM_NEON|ARM_FEATURE)[A-Z0-9_]*/) {
    offence(substr($0, RSTART, RLENGTH) ": only src/kernels/simd/simd.h asks for an instruction set")
    next
}
FILENAME ~ /^src\/kernels\/simd\// || FILENAME in one_set { next }
match($0, /(^|[^A-Za-z0-9_])(_mm(256|512)?_[a-z0-9_]+|__m(128|256|512)[a-z]*|_tile_[a-z0-9]+|v(ld1|st1|cvt|fma|dot|dup|get|add|mul)[a-z]*_[a-z0-9_]+|(u?int|float)(8|16|32)x(4|8|16)_t)/) {
    offence(substr($0, RSTART, RLENGTH) ": intrinsics belong to src/kernels/simd")
}
END { exit failed }
'
