// Four products of bytes, added to a sum: DOT4(sum, x, w), x and w four bytes each in an uint, w with
// a sign.
// Needs: SIGNED (x has one, too), DOT_PTX (by dp4a in inline PTX), DOT_KHR (by functions of
// cl_khr_integer_dot_product).
#if DOT_PTX && SIGNED
#define DOT4(sum, x, w) asm("dp4a.s32.s32 %0, %1, %2, %0;" : "+r"(sum) : "r"(x), "r"(w))
#elif DOT_PTX
#define DOT4(sum, x, w) asm("dp4a.u32.s32 %0, %1, %2, %0;" : "+r"(sum) : "r"(x), "r"(w))
#elif DOT_KHR && SIGNED
#define DOT4(sum, x, w) sum += dot_4x8packed_ss_int(x, w)
#elif DOT_KHR
#define DOT4(sum, x, w) sum += dot_4x8packed_us_int(x, w)
#else
#if SIGNED
#define AS_BYTES(x) as_char4(x)
#else
#define AS_BYTES(x) as_uchar4(x)
#endif
#define DOT4(sum, x, w)                                                                           \
    {                                                                                             \
        const int4 products = convert_int4(AS_BYTES(x)) * convert_int4(as_char4(w));              \
        sum += products.s0 + products.s1 + products.s2 + products.s3;                             \
    }
#endif
// Four bytes that are the same.
#define FOUR(byte) ((uint)(uchar)(byte) * 0x01010101u)
