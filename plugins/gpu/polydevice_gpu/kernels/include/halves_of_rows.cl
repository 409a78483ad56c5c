// Numbers of f32 as two halves each, by which matrix units multiply integers of BITS bits.
// Needs: BITS; `less` and `less_64` (MINUS_LARGE and MINUS_64 of each column's zero) where words are multiplied.
// The units multiply half, in which numbers of the matrix less their zero are exact. A row is scaled by
// a power of two, by which its largest number comes to 2^14, and is the sum of two halves: of 24 bits,
// as long as numbers are not 2^38 times smaller than the largest.
#define MULTIPLY(c, a0, a1, a2, a3, b0, b1)                                                 \
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "                       \
                 "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"                    \
                 : "+f"((c)[0]), "+f"((c)[1]), "+f"((c)[2]), "+f"((c)[3])                   \
                 : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1))
// Two halves at once: x * factor + shift, and two numbers as halves.
#define FMA_HALVES(result, x, factor, shift)                                                \
    asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(result) : "r"(x), "r"(factor), "r"(shift))
#define AS_HALVES(result, low, high)                                                        \
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(result) : "f"(high), "f"(low))
#define FROM_HALVES(low, high, x)                                                           \
    asm("{ .reg .b16 l, h; mov.b32 {l, h}, %2; cvt.f32.f16 %0, l; cvt.f32.f16 %1, h; }"     \
        : "=f"(low), "=f"(high) : "r"(x))
#define LARGEST_OF_WARP(result, x)                                                          \
    asm volatile("redux.sync.max.u32 %0, %1, 0xffffffff;" : "=r"(result) : "r"(x))
// A small number in the lower bits of the half 1024 is that much more; one 4 bits above, 16 times that.
#define LARGE 0x64006400u
#define ONES 0x3C003C00u
#define SIXTEENTHS 0x2C002C00u
#define MINUS_LARGE(zero) (0xE400E400u + (zero) * 0x00010001u)
#define MINUS_64(zero) (0xD400D400u + (zero) * 0x00100010u)
// Two numbers of a word less their zero: those lowest in both its parts, and those behind them.
#if BITS == 8
#define LOW(result, word, c) FMA_HALVES(result, ((word) & 0x00FF00FFu) | LARGE, ONES, less[c])
#define HIGH(result, word, c) LOW(result, (word) >> 8, c)
#else
#define LOW(result, word, c) FMA_HALVES(result, ((word) & 0x000F000Fu) | LARGE, ONES, less[c])
#define HIGH(result, word, c) \
    FMA_HALVES(result, ((word) & 0x00F000F0u) | LARGE, SIXTEENTHS, less_64[c])
#endif
// Sixteen terms (of lanes side by side) of columns `c` and `c + 1`: those of a word, or of half a word of 4 bits.
#define MULTIPLY_WORD(sums, c, above, below, b0, b1)                                        \
    {                                                                                       \
        uint a0, a1, a2, a3;                                                                \
        LOW(a0, above, c);                                                                  \
        LOW(a1, below, (c) + 1);                                                            \
        HIGH(a2, above, c);                                                                 \
        HIGH(a3, below, (c) + 1);                                                           \
        MULTIPLY(sums, a0, a1, a2, a3, b0, b1);                                             \
    }
// The exponent of a row's factor, by the bits of its largest number.
#define EXPONENT_FOR(most) min(268 - (int)((most) >> 23), 253)
#define AS_FACTOR(exponent) as_float((uint)(exponent) << 23)
// Store eight terms as four words of higher, and four of lower halves, in the order in which words have them:
// of 4 bits numbers 0 and 4 of a word lie apart as 1 and 5 do, of 8 bits 0 and 2.
#define STORE_HALVES(to_high, to_low, x, factor)                                            \
    {                                                                                       \
        uint high[4], low[4];                                                               \
        _Pragma("unroll") for (int pair = 0; pair < 4; pair++) {                            \
            const int e = BITS == 8 ? pair / 2 * 4 + pair % 2 : pair;                       \
            const float p = (x)[e] * (factor), q = (x)[e + 16 / BITS] * (factor);           \
            float p_high, q_high;                                                           \
            AS_HALVES(high[pair], p, q);                                                    \
            FROM_HALVES(p_high, q_high, high[pair]);                                        \
            /* An infinite number is all in its first half. */                              \
            p_high = isinf(p_high) ? 0.0f : (p - p_high) * 2048.0f;                         \
            q_high = isinf(q_high) ? 0.0f : (q - q_high) * 2048.0f;                         \
            AS_HALVES(low[pair], p_high, q_high);                                           \
        }                                                                                   \
        *(__local uint4*)(to_high) = (uint4)(high[0], high[1], high[2], high[3]);           \
        *(__local uint4*)(to_low) = (uint4)(low[0], low[1], low[2], low[3]);                \
    }
