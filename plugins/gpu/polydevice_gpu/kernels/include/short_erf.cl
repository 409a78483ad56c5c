// The error function (Abramowitz and Stegun 7.1.26, as in GELU), with an error below 2e-6: where it is
// rounded to 8 bits next. On Intel's runtime erf takes a third of a product of bytes of 64 terms.
#ifndef SHORT_ERF
#define SHORT_ERF(F) \
    static inline F SHORT_ERF_##F(F x) { \
        const F t = 1.0f / (1.0f + 0.3275911f * fabs(x)); \
        const F p = (((1.061405429f * t - 1.453152027f) * t + 1.421413741f) * t \
                     - 0.284496736f) * t + 0.254829592f; \
        return copysign(1.0f - p * t * POWER_OF_2(-1.442695041f * x * x), x); \
    }
SHORT_ERF(float)
SHORT_ERF(float4)
SHORT_ERF(float8)
SHORT_ERF(float16)
#endif
