/* amx.c: the products of attention in bf16, on the tiles of AMX (attention/bf16.h). */
#include "kernels/attention/bf16.h"

#include <stdatomic.h>

/* A little of the weighing that goes on beside the products, if one does: the CPU has both
 * under way if they lie within some hundred instructions. */
LANES_INLINE void weigh_some(struct weighing *w)
{
    if (w && w->scores != w->end) weigh_two(w);
}

/* The compiler is not told that loading a tile reads memory. */
LANES_INLINE void finish_stores(void)
{
    atomic_signal_fence(memory_order_seq_cst);
}

/* A block of memory as an operand, or as sums. */
#define LOAD(tile, address)  _tile_loadd(tile, address, 64)
#define STORE(tile, address) _tile_stored(tile, address, 64)

/* All eight tile registers are 16 rows of 64 bytes.  Constant and not on the stack: the
 * compiler's intrinsic says that it reads 8 of the 64 bytes. */
static void begin_products(void)
{
    static const struct {
        _Alignas(64) uint8_t palette;
        uint8_t start_row, reserved[14];
        uint16_t row_bytes[16];
        uint8_t rows[16];
    } config = { .palette = 1,
                 .row_bytes = { 64, 64, 64, 64, 64, 64, 64, 64 },
                 .rows = { 16, 16, 16, 16, 16, 16, 16, 16 } };
    _tile_loadconfig(&config);
    finish_stores();
}

static void end_products(void)
{
    _tile_release();
}

/* A piece's scores, 32 positions at a time. */
LANES_INLINE void score(const struct attend_layout *l, const struct piece *p, struct weighing *w)
{
    size_t steps = l->key_padded / STEP;
    const uint32_t *q = (const uint32_t *)(const void *)l->queries + p->group * steps * BLOCK;
    const uint32_t *k = (const uint32_t *)(const void *)l->keys + p->tile * 4 * steps * BLOCK;
    for (size_t r = 0; r < p->count * ATTEND_TILE; r += 32, k += 2 * steps * BLOCK) {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
        for (size_t s = 0; s < steps; s++) {
            LOAD(4, k + s * BLOCK);
            LOAD(6, q + s * BLOCK);
            weigh_some(w);
            _tile_dpbf16ps(0, 4, 6);
            LOAD(7, q + (steps + s) * BLOCK);
            weigh_some(w);
            _tile_dpbf16ps(1, 4, 7);
            LOAD(5, k + (steps + s) * BLOCK);
            weigh_some(w);
            _tile_dpbf16ps(2, 5, 6);
            weigh_some(w);
            _tile_dpbf16ps(3, 5, 7);
        }
        float *out = p->scores + r * 16, *beside = out + ATTEND_PIECE * 16;
        STORE(0, out);
        STORE(2, out + BLOCK);
        STORE(1, beside);
        STORE(3, beside + BLOCK);
    }
}

/* sums += Vᵀ·P, 32 channels at a time. */
LANES_INLINE void add(const struct attend_layout *l, const struct piece *p, struct weighing *w)
{
    size_t steps = p->count * TILE_STEPS, channels = TILE_STEPS * BLOCK;
    size_t tile = l->value_padded / 16 * channels;
    const uint32_t *v = (const uint32_t *)(const void *)l->values + p->tile * tile;
    const uint32_t *weights = p->weights, *weights_beside = weights + PIECE_TILES * channels;
    float *sums = l->sums + p->group * l->value_padded * 16;
    float *beside = sums + l->value_padded * 16;
    scale_sums(l, sums, p->keep);
    scale_sums(l, beside, p->keep + ATTEND_LANES);
    finish_stores();
    for (size_t c = 0; c < l->value_padded;
         c += 32, v += 2 * channels, sums += 2 * BLOCK, beside += 2 * BLOCK) {
        LOAD(0, sums);
        LOAD(1, beside);
        LOAD(2, sums + BLOCK);
        LOAD(3, beside + BLOCK);
        for (size_t s = 0; s < steps; s++) {
            const uint32_t *values = v + s / TILE_STEPS * tile + s % TILE_STEPS * BLOCK;
            LOAD(4, values);
            LOAD(6, weights + s * BLOCK);
            weigh_some(w);
            _tile_dpbf16ps(0, 4, 6);
            LOAD(7, weights_beside + s * BLOCK);
            weigh_some(w);
            _tile_dpbf16ps(1, 4, 7);
            LOAD(5, values + channels);
            weigh_some(w);
            _tile_dpbf16ps(2, 5, 6);
            weigh_some(w);
            _tile_dpbf16ps(3, 5, 7);
        }
        STORE(0, sums);
        STORE(1, beside);
        STORE(2, sums + BLOCK);
        STORE(3, beside + BLOCK);
    }
}

void NAMED(bf16_attend_begin)(const struct attend_block *b)
{
    begin_block(b);
}

void NAMED(bf16_attend_tile)(const struct attend_block *b, const struct attend_tile *tile)
{
    add_tile(b, tile);
}

void NAMED(bf16_attend_end)(const struct attend_block *b)
{
    end_block(b);
}
