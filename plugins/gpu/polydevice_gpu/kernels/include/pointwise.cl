// Functions and macros that the expressions of pointwise.py use.
// WHERE_<type>(c, a, b) is "a where c, else b"; on vectors c is an integer vector of 0 and -1.
#define WHERE_char(c, a, b) ((c) ? (char)(a) : (char)(b))
#define WHERE_uchar(c, a, b) ((c) ? (uchar)(a) : (uchar)(b))
#define WHERE_short(c, a, b) ((c) ? (short)(a) : (short)(b))
#define WHERE_ushort(c, a, b) ((c) ? (ushort)(a) : (ushort)(b))
#define WHERE_int(c, a, b) ((c) ? (int)(a) : (int)(b))
#define WHERE_uint(c, a, b) ((c) ? (uint)(a) : (uint)(b))
#define WHERE_long(c, a, b) ((c) ? (long)(a) : (long)(b))
#define WHERE_ulong(c, a, b) ((c) ? (ulong)(a) : (ulong)(b))
#define WHERE_float(c, a, b) ((c) ? (float)(a) : (float)(b))
#define WHERE_double(c, a, b) ((c) ? (double)(a) : (double)(b))
#define WHERE_float2(c, a, b) select((float2)(b), (float2)(a), (c))
#define WHERE_float4(c, a, b) select((float4)(b), (float4)(a), (c))
#define WHERE_float8(c, a, b) select((float8)(b), (float8)(a), (c))
#define WHERE_float16(c, a, b) select((float16)(b), (float16)(a), (c))
// Bytes, or what is i32 already, as i32.
#define INTS_int(x) (int)(x)
#define INTS_int4(x) convert_int4(x)
#define INTS_int8(x) convert_int8(x)
#define INTS_int16(x) convert_int16(x)

// The nearest number of f16 or bf16, halves to even, held in f32. Below 2^-14 f16 has steps of 2^-24,
// as f32 has from 1/2 to 1.
#define ROUND(F, U) \
    static inline F ROUND_HALF_##F(F x) { \
        const U u = as_##U(x); \
        const F large = as_##F((u + 0xfffu + ((u >> 13) & 1u)) & ~0x1fffu); \
        const F small = copysign((fabs(x) + 0.5f) - 0.5f, x); \
        const F near = WHERE_##F(fabs(x) < 0x1p-14f, small, large); \
        const F held = WHERE_##F(fabs(near) > 65504.0f, copysign((F)(INFINITY), x), near); \
        return WHERE_##F(x != x, x, held); \
    } \
    static inline F ROUND_BFLOAT_##F(F x) { \
        const U u = as_##U(x); \
        return WHERE_##F(x != x, x, as_##F((u + 0x7fffu + ((u >> 16) & 1u)) & ~0xffffu)); \
    }
ROUND(float, uint)
ROUND(float2, uint2)
ROUND(float4, uint4)
ROUND(float8, uint8)
ROUND(float16, uint16)

// x times the normal distribution's share below it. What is beyond |x| has an error below 1.5e-7
// (Abramowitz and Stegun, 7.1.26), and costs a third of erf. Native functions have whatever error the
// device likes: on Intel's runtime for CPUs reciprocals 2.4e-4, and powers 7e-5 where there is no AVX-512
// (0.8 ns for a number, the others 1.25).
#ifdef __NV_CL_C_VERSION
#define RECIPROCAL(x) native_recip(x)
#define POWER_OF_2(x) native_exp2(x)
#else
#define RECIPROCAL(x) (1.0f / (x))
#define POWER_OF_2(x) exp2(x)
#endif
#define GELU(F) \
    static inline F GELU_##F(F x) { \
        const F t = RECIPROCAL(1.0f + 0.231641888f * fabs(x)); \
        const F p = (((0.5307027145f * t - 0.7265760135f) * t + 0.7107068705f) * t \
                     - 0.142248368f) * t + 0.127414796f; \
        const F beyond = p * t * POWER_OF_2(-0.72134752f * x * x); \
        return x * WHERE_##F(x < 0.0f, beyond, 1.0f - beyond); \
    }
GELU(float)
GELU(float2)
GELU(float4)
GELU(float8)
GELU(float16)
// The same for results in half: by a logistic function of a polynomial with an error below 2.6e-5, half
// of what rounding costs where that is largest. On an H200 the other took 20 of the 80 us of a product
// of 6304x3072x768, its two native functions each with care for numbers that are not normal.
#ifdef __NV_CL_C_VERSION
static inline float SHORT_EXP2_float(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
static inline float SHORT_RECIPROCAL_float(float x) {
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
#define HALVES(name, F, half)                                                       \
    static inline F name##_##F(F x) { return (F)(name##_##half(x.lo), name##_##half(x.hi)); }
#define SHORT(F, half) HALVES(SHORT_EXP2, F, half) HALVES(SHORT_RECIPROCAL, F, half)
SHORT(float2, float)
SHORT(float4, float2)
SHORT(float8, float4)
SHORT(float16, float8)
#define SHORT_EXP2(F, x) SHORT_EXP2_##F(x)
#define SHORT_RECIPROCAL(F, x) SHORT_RECIPROCAL_##F(x)
#else
#define SHORT_EXP2(F, x) native_exp2(x)
#define SHORT_RECIPROCAL(F, x) (1.0f / (x))
#endif
#define GELU_HALF(F) \
    static inline F GELU_HALF_##F(F x) { \
        const F square = fmin(x * x, (F)(40.0f)); /* the polynomial turns back beyond */ \
        const F p = (0.0010142635f * square - 0.10677572f) * square - 2.3011212f; \
        return x * SHORT_RECIPROCAL(F, 1.0f + SHORT_EXP2(F, x * p)); \
    }
GELU_HALF(float)
GELU_HALF(float2)
GELU_HALF(float4)
GELU_HALF(float8)
GELU_HALF(float16)
#define GELU_double(x) (0.5 * (x) * (1 + erf((x) * 0.70710678118654752)))

// x to the power y, truncated towards zero; x^-n is 0 except for x = 1 and -1.
static inline long power_integer(long x, long y) {
    if (y < 0) return x == 1 ? 1 : x == -1 ? ((y & 1) ? -1 : 1) : 0;
    ulong result = 1, base = (ulong)x;
    for (; y > 0; y >>= 1) {
        if (y & 1) result *= base;
        base *= base;
    }
    return (long)result;
}

// Inverse of erf: a rational start (Giles, "Approximating the erfinv function", 2010).
static inline float erf_inverse(float x) {
    if (!(fabs(x) <= 1.0f)) return NAN;
    if (fabs(x) == 1.0f) return x * INFINITY;
    float w = -log((1.0f - x) * (1.0f + x));
    float p;
    if (w < 5.0f) {
        w -= 2.5f;
        p = 2.81022636e-08f;
        p = 3.43273939e-07f + p * w;
        p = -3.5233877e-06f + p * w;
        p = -4.39150654e-06f + p * w;
        p = 0.00021858087f + p * w;
        p = -0.00125372503f + p * w;
        p = -0.00417768164f + p * w;
        p = 0.246640727f + p * w;
        p = 1.50140941f + p * w;
    } else {
        w = sqrt(w) - 3.0f;
        p = -0.000200214257f;
        p = 0.000100950558f + p * w;
        p = 0.00134934322f + p * w;
        p = -0.00367342844f + p * w;
        p = 0.00573950773f + p * w;
        p = -0.0076224613f + p * w;
        p = 0.00943887047f + p * w;
        p = 1.00167406f + p * w;
        p = 2.83297682f + p * w;
    }
    return p * x;
}
