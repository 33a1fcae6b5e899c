#include "kernels/scalar_math.h"

#include <math.h>

/* x = n·ln 2 + r with |r| ≤ ½ ln 2; e^r by its series, whose 15 terms reach 2^-57. */
double scalar_exp(double x)
{
    const double ln2_high = 6.93147180369123816490e-01, ln2_low = 1.90821492927058770002e-10;
    if (x != x) return x;
    if (x > 709.0) return HUGE_VAL;
    if (x < -708.0) return 0.0;
    double n = rint(x * 1.44269504088896338700);
    double r = (x - n * ln2_high) - n * ln2_low;
    double sum = 1.0;
    for (int i = 15; i > 0; i--) sum = 1.0 + r / i * sum;
    return ldexp(sum, (int)n);
}

/* ln m for m·2^n = u: 2·artanh((m - 1) / (m + 1)) by its series. */
static double scalar_log(double u)
{
    int n;
    double m = frexp(u, &n);
    if (m < 0.70710678118654752440) {
        m *= 2.0;
        n--;
    }
    double s = (m - 1.0) / (m + 1.0), square = s * s, sum = 0.0;
    for (int i = 23; i > 0; i -= 2) sum = sum * square + 1.0 / i;
    return 2.0 * s * sum + n * 0.69314718055994530942;
}

/* What 1 + x rounds away comes back with the ratio of x to what was kept. */
double scalar_log1p(double x)
{
    double u = 1.0 + x;
    return u == 1.0 ? x : scalar_log(u) * (x / (u - 1.0));
}

double scalar_sigmoid(double x)
{
    return 1.0 / (1.0 + scalar_exp(-x));
}

double scalar_softplus(double x)
{
    return x > 20.0 ? x : scalar_log1p(scalar_exp(x));
}

/* x = n·π/2 + r, π/2 in two parts.  fma rounds once, so that x - n·high is exact to
 * the last bit of r for every n below 2^53; then both series on |r| ≤ π/4. */
void scalar_sincos(double *sine, double *cosine, double x)
{
    const double high = 1.57079632679489655800e+00, low = 6.12323399573676603587e-17;
    double n = rint(x * 6.36619772367581382433e-01);
    double r = fma(-n, low, fma(-n, high, x));
    double square = r * r, s = 1.0, c = 1.0;
    for (int i = 20; i > 0; i -= 2) {
        s = 1.0 - square / (i * (i + 1.0)) * s;
        c = 1.0 - square / (i * (i - 1.0)) * c;
    }
    s *= r;
    switch ((int)((long long)n & 3)) {
    case 0:
        *sine = s, *cosine = c;
        break;
    case 1:
        *sine = c, *cosine = -s;
        break;
    case 2:
        *sine = -s, *cosine = -c;
        break;
    default:
        *sine = -c, *cosine = s;
    }
}
