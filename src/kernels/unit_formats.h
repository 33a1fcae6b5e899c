/* unit_formats.h: the formats whose numbers are integers with scales. */
#ifndef KERNELS_UNIT_FORMATS_H
#define KERNELS_UNIT_FORMATS_H

/* FORMAT_id, loader, what all numbers are below, numbers that share a scale,
 * bytes of a unit's values */
#define AFFINE_FORMATS(X)                                                                          \
    X(AFFINE2, affine2, 4, 32, 64)                                                                 \
    X(AFFINE3, affine3, 8, 32, 96)                                                                 \
    X(AFFINE4, affine4, 16, 32, 128)                                                               \
    X(AFFINE5, affine5, 32, 32, 160)                                                               \
    X(AFFINE6, affine6, 64, 32, 192)                                                               \
    X(AFFINE8, affine8, 256, 32, 256)
#define BLOCK_FORMATS(X)                                                                           \
    X(Q4_0, q4_0, 16, 32, 144)                                                                     \
    X(Q4_1, q4_1, 16, 32, 160)                                                                     \
    X(Q5_0, q5_0, 32, 32, 176)                                                                     \
    X(Q5_1, q5_1, 32, 32, 192)                                                                     \
    X(Q8_0, q8_0, 256, 32, 272)                                                                    \
    X(IQ4_NL, iq4_nl, 256, 32, 144)                                                                \
    X(MXFP4, mxfp4, 32, 32, 136)                                                                   \
    X(E2M1, e2m1, 32, 32, 128)                                                                     \
    X(Q2_K, q2_k, 4, 16, 84)                                                                       \
    X(Q3_K, q3_k, 8, 16, 110)                                                                      \
    X(Q4_K, q4_k, 16, 32, 144)                                                                     \
    X(Q5_K, q5_k, 32, 32, 176)                                                                     \
    X(Q6_K, q6_k, 64, 16, 210)                                                                     \
    X(IQ4_XS, iq4_xs, 256, 32, 136)
#define UNIT_FORMATS(X) AFFINE_FORMATS(X) BLOCK_FORMATS(X)

#endif
