// Vectors of bytes and floats, and limits, as NVIDIA's instructions have them; elsewhere as OpenCL has.
#ifndef SATURATE_float
#ifdef __NV_CL_C_VERSION
// Limits of 0 and 1, which come with the addition before; NaN becomes 0.
#define SATURATE_float(x) ({ float y_; asm("cvt.sat.f32.f32 %0, %1;" : "=f"(y_) : "f"(x)); y_; })
#define SATURATE_float2(x) \
    ({ const float2 x2_ = x; (float2)(SATURATE_float(x2_.lo), SATURATE_float(x2_.hi)); })
#define SATURATE_float4(x) \
    ({ const float4 x4_ = x; (float4)(SATURATE_float2(x4_.lo), SATURATE_float2(x4_.hi)); })
#define SATURATE_float8(x) \
    ({ const float8 x8_ = x; (float8)(SATURATE_float4(x8_.lo), SATURATE_float4(x8_.hi)); })
#define SATURATE_float16(x) \
    ({ const float16 x16_ = x; (float16)(SATURATE_float8(x16_.lo), SATURATE_float8(x16_.hi)); })
// Each byte of a word in the lower bits of 2^23, less what that is too much: a conversion takes as long
// as two of these additions. Words are read at once, bytes by fours at most.
#define FLOATS_OF(x, less) ({ \
    const uint word_ = x, large_ = 0x4B000000u; \
    uint4 y_; \
    asm("prmt.b32 %0, %1, %2, 0x7540;" : "=r"(y_.s0) : "r"(word_), "r"(large_)); \
    asm("prmt.b32 %0, %1, %2, 0x7541;" : "=r"(y_.s1) : "r"(word_), "r"(large_)); \
    asm("prmt.b32 %0, %1, %2, 0x7542;" : "=r"(y_.s2) : "r"(word_), "r"(large_)); \
    asm("prmt.b32 %0, %1, %2, 0x7543;" : "=r"(y_.s3) : "r"(word_), "r"(large_)); \
    as_float4(y_) - (float4)(less); })
#define FLOATS_uchar4(x) FLOATS_OF(as_uint(x), 0x1p23f)
#define FLOATS_char4(x) FLOATS_OF(as_uint(x) ^ 0x80808080u, 0x1p23f + 128.0f)
#define FLOATS_uchar8(x) ({ \
    const uint2 words_ = as_uint2(x); \
    (float8)(FLOATS_OF(words_.lo, 0x1p23f), FLOATS_OF(words_.hi, 0x1p23f)); })
#define FLOATS_char8(x) ({ \
    const uint2 words_ = as_uint2(x) ^ 0x80808080u; \
    (float8)(FLOATS_OF(words_.lo, 0x1p23f + 128.0f), FLOATS_OF(words_.hi, 0x1p23f + 128.0f)); })
// The lowest byte of each integer, which lies so many above 0x4B400000.
#define WORD_OF(x) ({ \
    const int4 four_ = x; \
    uint y_, z_; \
    asm("prmt.b32 %0, %1, %2, 0x0040;" : "=r"(y_) : "r"(four_.s0), "r"(four_.s1)); \
    asm("prmt.b32 %0, %1, %2, 0x0040;" : "=r"(z_) : "r"(four_.s2), "r"(four_.s3)); \
    asm("prmt.b32 %0, %0, %1, 0x5410;" : "+r"(y_) : "r"(z_)); \
    y_; })
#define BYTES_uchar4(x) as_uchar4(WORD_OF(x))
#define BYTES_char4(x) as_char4(WORD_OF(x))
#define BYTES_uchar8(x) \
    ({ const int8 x8_ = x; as_uchar8((uint2)(WORD_OF(x8_.lo), WORD_OF(x8_.hi))); })
#define BYTES_char8(x) \
    ({ const int8 x8_ = x; as_char8((uint2)(WORD_OF(x8_.lo), WORD_OF(x8_.hi))); })
#else
#define SATURATE_float(x) fmin(fmax(x, 0.0f), 1.0f)
#define SATURATE_float2 SATURATE_float
#define SATURATE_float4 SATURATE_float
#define SATURATE_float8 SATURATE_float
#define SATURATE_float16 SATURATE_float
#define FLOATS_uchar4 convert_float4
#define FLOATS_char4 convert_float4
#define FLOATS_uchar8 convert_float8
#define FLOATS_char8 convert_float8
#define BYTES_uchar4(x) convert_uchar4((x) - 0x4B400000)
#define BYTES_char4(x) convert_char4((x) - 0x4B400000)
#define BYTES_uchar8(x) convert_uchar8((x) - 0x4B400000)
#define BYTES_char8(x) convert_char8((x) - 0x4B400000)
#endif
#endif
