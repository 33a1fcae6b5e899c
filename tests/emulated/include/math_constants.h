/* math_constants.h: CUDA's names of two numbers. */
#ifndef EMULATED_MATH_CONSTANTS_H
#define EMULATED_MATH_CONSTANTS_H

#define CUDART_INF_F __builtin_inff()
#define CUDART_NAN_F __builtin_nanf("")

#endif
