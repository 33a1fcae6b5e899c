/* random.h: the generator behind sampling.
 *
 * xoshiro256++ (Blackman and Vigna), its state spread from one seed by splitmix64 so
 * that neighbouring seeds share nothing.  Written here so that a seed gives the same
 * text with every C library. */
#ifndef SAMPLING_RANDOM_H
#define SAMPLING_RANDOM_H

#include <stdint.h>

struct random {
    uint64_t s[4];
};

static inline void random_seed(struct random *random, uint64_t seed)
{
    for (int i = 0; i < 4; i++) {
        uint64_t z = (seed += 0x9e3779b97f4a7c15u);
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
        random->s[i] = z ^ (z >> 31);
    }
}

static inline uint64_t random_rotate_left(uint64_t x, int count)
{
    return (x << count) | (x >> (64 - count));
}

static inline uint64_t random_next(struct random *random)
{
    uint64_t *s = random->s;
    uint64_t result = random_rotate_left(s[0] + s[3], 23) + s[0];
    uint64_t t = s[1] << 17;
    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = random_rotate_left(s[3], 45);
    return result;
}

/* Uniform in [0, 1), a multiple of 2^-53. */
static inline double random_unit(struct random *random)
{
    return (double)(random_next(random) >> 11) * 0x1p-53;
}

#endif
