/* scalar_math.h: the few transcendental functions that are needed one at a time,
 * in double, of our own so that every machine gets the same bits. */
#ifndef KERNELS_SCALAR_MATH_H
#define KERNELS_SCALAR_MATH_H

double scalar_exp(double x);
double scalar_log1p(double x); /* x > -1 */
double scalar_sigmoid(double x);
/* ln(1 + e^x) */
double scalar_softplus(double x);
/* For |x| up to some 10^9: positions times frequencies. */
void scalar_sincos(double *sine, double *cosine, double x);

#endif
