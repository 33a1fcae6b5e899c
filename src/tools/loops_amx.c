/* loops_amx.c: the matrix unit of the CPU, with nothing to wait for: two tiles of each
 * operand, four of results, all of them zero. */
#include "tools/loops.h"

#include <immintrin.h>

/* What the processor reads: palette 1, then the bytes of a row and the rows of each tile. */
struct tile_shapes {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
};
_Static_assert(sizeof(struct tile_shapes) == 64, "as ldtilecfg wants it");

static void set_up_tiles(void)
{
    struct tile_shapes shapes = { .palette = 1 };
    for (int i = 0; i < 8; i++) {
        shapes.row_bytes[i] = 64;
        shapes.rows[i] = 16;
    }
    /* GCC takes the intrinsic for a read of 8 bytes and would leave the others unwritten. */
    __asm__ volatile("" : : "r"(&shapes) : "memory");
    _tile_loadconfig(&shapes);
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    _tile_zero(4);
    _tile_zero(5);
    _tile_zero(6);
    _tile_zero(7);
}

void loops_amx_bf16(size_t rounds)
{
    set_up_tiles();
    for (size_t r = 0; r < rounds; r++) {
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
    _tile_release();
}

void loops_amx_int8(size_t rounds)
{
    set_up_tiles();
    for (size_t r = 0; r < rounds; r++) {
        _tile_dpbusd(0, 4, 6);
        _tile_dpbusd(1, 4, 7);
        _tile_dpbusd(2, 5, 6);
        _tile_dpbusd(3, 5, 7);
    }
    _tile_release();
}
