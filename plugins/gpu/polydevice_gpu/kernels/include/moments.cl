// Rows of half that are normalised while the matrix units multiply them: a work-item gathers sums and
// squares of those pieces of 16 bytes that it copied to local memory itself, less the first term of their
// row, so that squares stay small. PIECES neighbours have the pieces of a row's step.
// Needs: PIECES, CHANNELS_IN, EPSILON; for each column COLUMN_SUMS (of the weights) and SHIFTS;
// MOMENTS(m), mean and factor of row m. NVIDIA's PTX.
#define READ_PIECE(to, at)                                                                  \
    asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];"                                    \
                 : "=r"((to).s0), "=r"((to).s1), "=r"((to).s2), "=r"((to).s3)               \
                 : "r"(at) : "memory")
#define FROM_LANE(to, from, bit)                                                            \
    asm volatile("shfl.sync.bfly.b32 %0, %1, %2, 31, 0xffffffff;"                           \
                 : "=f"(to) : "f"(from), "r"(bit))
#define GATHER_PAIR(bits, base, total, squares)                                             \
    {                                                                                       \
        const float2 pair = half_pair(bits) - base;                                         \
        total += pair.s0 + pair.s1;                                                         \
        squares = fma(pair.s0, pair.s0, fma(pair.s1, pair.s1, squares));                    \
    }
#define GATHER_PIECE(at, base, total, squares)                                              \
    {                                                                                       \
        uint4 bits;                                                                         \
        READ_PIECE(bits, at);                                                               \
        GATHER_PAIR(bits.s0, base, total, squares) GATHER_PAIR(bits.s1, base, total, squares) \
        GATHER_PAIR(bits.s2, base, total, squares) GATHER_PAIR(bits.s3, base, total, squares) \
    }
// Mean and factor of a row, `found`, from all who have pieces of it.
#define JOIN_MOMENTS(found, base, total, squares)                                           \
    _Pragma("unroll") for (int bit = 1; bit < PIECES; bit <<= 1) {                          \
        float others;                                                                       \
        FROM_LANE(others, total, bit);                                                      \
        total += others;                                                                    \
        FROM_LANE(others, squares, bit);                                                    \
        squares += others;                                                                  \
    }                                                                                       \
    const float off = total / CHANNELS_IN;                                                  \
    const float2 found =                                                                    \
        (float2)(base + off, rsqrt(fmax(squares / CHANNELS_IN - off * off, 0.0f) + EPSILON));
#define EIGHT_FLOATS(at) \
    (float8)(*(__global const float4*)(at), *(__global const float4*)((at) + 4))
#define BEGIN(eight, n)                                                                     \
    {                                                                                       \
        const float2 row = MOMENTS(min(m, ROWS - 1));                                       \
        eight = (eight - row.s0 * EIGHT_FLOATS(column_sums + (n))) * row.s1 +               \
                EIGHT_FLOATS(shifts + (n));                                                 \
    }
