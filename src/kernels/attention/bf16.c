/* bf16.c: the products of attention in bf16, with vectors (attention/bf16.h). */
#include "kernels/attention/bf16.h"

/* Two products of eight rows of an A operand with two B operands.  Steps that follow each other
 * in B do so in A within a tile of positions. */
struct eight_rows {
    const uint32_t *a, *b, *b_beside;
    size_t tiles, steps; /* of the tiles, and within one */
    size_t tile;         /* dwords from one tile's A blocks to the next one's */
};

/* out[8][16] and beside[8][16] become the products, or are added to. */
LANES_INLINE void multiply_eight(float *out, float *beside, const struct eight_rows *e, bool add)
{
    enum { ROWS = 8 };
    __m512 sums[ROWS][2];
    const uint32_t *b = e->b, *b_beside = e->b_beside;
    for (size_t i = 0; i < ROWS; i++) {
        sums[i][0] = add ? _mm512_load_ps(out + 16 * i) : _mm512_setzero_ps();
        sums[i][1] = add ? _mm512_load_ps(beside + 16 * i) : _mm512_setzero_ps();
    }
    for (size_t t = 0; t < e->tiles; t++) {
        const uint32_t *a = e->a + t * e->tile;
        for (size_t s = 0; s < e->steps; s++, a += BLOCK - 16)
            for (size_t j = 0; j < 16; j++, a++, b += 16, b_beside += 16) {
                __m512bh x = (__m512bh)_mm512_load_si512(b);
                __m512bh x_beside = (__m512bh)_mm512_load_si512(b_beside);
#pragma GCC unroll 8
                for (size_t i = 0; i < ROWS; i++) {
                    __m512bh both = (__m512bh)_mm512_set1_epi32((int)a[16 * i]);
                    sums[i][0] = _mm512_dpbf16_ps(sums[i][0], both, x);
                    sums[i][1] = _mm512_dpbf16_ps(sums[i][1], both, x_beside);
                }
            }
    }
    for (size_t i = 0; i < ROWS; i++) {
        _mm512_store_ps(out + 16 * i, sums[i][0]);
        _mm512_store_ps(beside + 16 * i, sums[i][1]);
    }
}

/* A piece's scores.  Vectors weigh, too, so there is nothing to do beside it. */
LANES_INLINE void score(const struct attend_layout *l, const struct piece *p, struct weighing *w)
{
    size_t steps = l->key_padded / STEP;
    const uint32_t *q = (const uint32_t *)(const void *)l->queries + p->group * steps * BLOCK;
    const uint32_t *k = (const uint32_t *)(const void *)l->keys + p->tile * 4 * steps * BLOCK;
    struct eight_rows e = { .b = q, .b_beside = q + steps * BLOCK, .tiles = 1, .steps = steps };
    (void)w;
    for (size_t r = 0; r < p->count * ATTEND_TILE; r += 8) {
        float *out = p->scores + r * 16;
        e.a = k + r / 16 * steps * BLOCK + r % 16 * 16;
        multiply_eight(out, out + ATTEND_PIECE * 16, &e, false);
    }
}

/* sums += Vᵀ·P */
LANES_INLINE void add(const struct attend_layout *l, const struct piece *p, struct weighing *w)
{
    size_t channels = TILE_STEPS * BLOCK, tile = l->value_padded / 16 * channels;
    const uint32_t *v = (const uint32_t *)(const void *)l->values + p->tile * tile;
    float *sums = l->sums + p->group * l->value_padded * 16;
    float *beside = sums + l->value_padded * 16;
    struct eight_rows e = { .b = p->weights,
                            .b_beside = p->weights + PIECE_TILES * channels,
                            .tiles = p->count,
                            .steps = TILE_STEPS,
                            .tile = tile };
    (void)w;
    scale_sums(l, sums, p->keep);
    scale_sums(l, beside, p->keep + ATTEND_LANES);
    for (size_t c = 0; c < l->value_padded; c += 8) {
        e.a = v + c / 16 * channels + c % 16 * 16;
        multiply_eight(sums + c * 16, beside + c * 16, &e, true);
    }
}

static void begin_products(void)
{
}

static void end_products(void)
{
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
