/* activation.h: what a feed-forward network makes of its gate t and of its other half u, by name. */
#ifndef BASE_ACTIVATION_H
#define BASE_ACTIVATION_H

enum activation {
    ACTIVATION_SILU, /* u · t / (1 + e^-t) */
    ACTIVATION_GELU, /* u · ½ t (1 + tanh(√(2/π) (t + 0.044715 t³))) */
    /* (u + 1) · t / (1 + e^(-1.702 t)), of t at most 7 and of u from -7 to 7 */
    ACTIVATION_CLAMPED,
    ACTIVATION_COUNT
};

#endif
