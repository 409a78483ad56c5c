// matmul_compressed_mma: a work-group computes 16 * TILES columns of a product of MOST_ROWS rows with a
// matrix of 4 or 8 bits on matrix units; every warp takes other terms of all of them.
// NDRange: {THREADS * column tiles}; local size {THREADS}.
// Layouts: any rows; terms side by side.   Types: half, float; sums in float.
// Needs: BITS, TILES, WARPS, DEPTH (pieces of 16 bytes of a column that a work-item has under way),
// MOST_ROWS, ROWS, COLUMNS, COUNT (terms), BLOCK (terms that share a scale, a multiple of SHARE), BLOCKS (of a
// column); MATRIX as [column, term] of BITS bits, the lower first; SCALES and ZEROS as [column, block].
// The units multiply half, in which numbers of the matrix less their zero are exact. A row is scaled by
// a power of two, by which its largest number comes to 2^14, and is the sum of two halves: of 24 bits,
// as long as numbers are not 2^38 times smaller than the largest.
#define THREADS (32 * WARPS)
// Columns are in pairs, one 8 behind the other, which a work-item has of a tile.
#define ALL (2 * TILES)
#define PIECE (128 / BITS)
// Terms that the four lanes of a column have together: of one block, so that a sum has one scale.
#define SHARE (4 * PIECE)
#define CHUNK (WARPS * DEPTH * SHARE)
#define EIGHTS (CHUNK / 8)
#define EIGHTS_EACH (EIGHTS / THREADS)
// Two halves of a row, whose eights start in different banks.
#define HALVES (2 * MOST_ROWS)
#define PITCH (EIGHTS + 4)
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
// The matrix is read once, past the processor's own cache.
#define READ(to, from)                                                                      \
    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];"                 \
                 : "=r"((to).s0), "=r"((to).s1), "=r"((to).s2), "=r"((to).s3) : "l"(from))
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
// Sixteen terms (of lanes side by side) of all columns: those of a word, or of half a word of 4 bits.
#define MULTIPLY_WORD(above, below, b0, b1)                                                 \
    {                                                                                       \
        uint a0, a1, a2, a3;                                                                \
        LOW(a0, above, 2 * t);                                                              \
        LOW(a1, below, 2 * t + 1);                                                          \
        HIGH(a2, above, 2 * t);                                                             \
        HIGH(a3, below, 2 * t + 1);                                                         \
        MULTIPLY(sum[t], a0, a1, a2, a3, b0, b1);                                            \
    }

KERNEL(matmul_compressed_mma) {
    LOCAL_ARRAY(uint, eights, HALVES * PITCH * 4, , 16);
    LOCAL_ARRAY(uint, largest, MOST_ROWS * WARPS, , 4);
    LOCAL_ARRAY(float, parts, WARPS * 16 * TILES * MOST_ROWS, , 4);
    const int thread = get_local_id(0), lane = thread & 31, warp = thread >> 5;
    const int first = get_group_id(0) * 16 * TILES, above = lane >> 2, quarter = lane & 3;
    size_t column[ALL];
    #pragma unroll
    for (int c = 0; c < ALL; c++) column[c] = min(first + above + 8 * c, COLUMNS - 1);
    __local const uint* half_at = eights + (above % HALVES * PITCH + quarter) * 4;
    float total[ALL];
    #pragma unroll
    for (int c = 0; c < ALL; c++) total[c] = 0.0f;
    #pragma unroll 1
    for (int start = 0; start < COUNT; start += CHUNK) {
        uint4 words[DEPTH][ALL];
        float scale[DEPTH][ALL];
        uint zero[DEPTH][ALL];
        #pragma unroll
        for (int d = 0; d < DEPTH; d++) {
            const int share = min(start + (warp * DEPTH + d) * SHARE, COUNT - SHARE);
            #pragma unroll
            for (int c = 0; c < ALL; c++) {
                const size_t term = column[c] * COUNT + share + quarter * PIECE;
                READ(words[d][c], matrix + term / 8 * BITS);
                scale[d][c] = SCALES_LOAD(column[c] * BLOCKS + share / BLOCK);
                zero[d][c] = zeros[column[c] * BLOCKS + share / BLOCK];
            }
        }
        // Rows as halves, eight terms at a time, in the order in which words have them.
        float x[MOST_ROWS][EIGHTS_EACH][8];
        uint most[MOST_ROWS];
        #pragma unroll
        for (int r = 0; r < MOST_ROWS; r++) {
            most[r] = 0;
            #pragma unroll
            for (int i = 0; i < EIGHTS_EACH; i++) {
                const int k = start + (i * THREADS + thread) * 8, inside = r < ROWS && k < COUNT;
                const int from = inside ? IN0_AT(r, k) : 0;
                #pragma unroll
                for (int e = 0; e < 8; e += 4) {
                    const float4 four = inside ? IN0_LOAD4(from + e) : (float4)(0.0f);
                    x[r][i][e] = four.s0, x[r][i][e + 1] = four.s1;
                    x[r][i][e + 2] = four.s2, x[r][i][e + 3] = four.s3;
                }
                #pragma unroll
                for (int e = 0; e < 8; e++) most[r] = max(most[r], as_uint(x[r][i][e]) & 0x7FFFFFFFu);
            }
        }
        #pragma unroll
        for (int r = 0; r < MOST_ROWS; r++) {
            uint of_warp = 0;
            LARGEST_OF_WARP(of_warp, most[r]);
            if (lane == 0) largest[r * WARPS + warp] = of_warp;
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        float back = 0.0f;  // what the row of this lane's sums was divided by
        #pragma unroll
        for (int r = 0; r < MOST_ROWS; r++) {
            uint of_all = largest[r * WARPS];
            #pragma unroll
            for (int w = 1; w < WARPS; w++) of_all = max(of_all, largest[r * WARPS + w]);
            const int exponent = min(268 - (int)(of_all >> 23), 253);
            const float up = as_float((uint)exponent << 23);
            if (quarter % MOST_ROWS == r) back = as_float((uint)(254 - exponent) << 23);
            #pragma unroll
            for (int i = 0; i < EIGHTS_EACH; i++) {
                const int eight = i * THREADS + thread, piece = eight / (PIECE / 8);
                const int place = (piece / 4 * (PIECE / 8) + eight % (PIECE / 8)) * 4 + piece % 4;
                uint high[4], low[4];
                #pragma unroll
                for (int pair = 0; pair < 4; pair++) {
                    // Of 4 bits numbers 0 and 4 of a word lie apart as 1 and 5 do, of 8 bits 0 and 2.
                    const int e = BITS == 8 ? pair / 2 * 4 + pair % 2 : pair;
                    const float p = x[r][i][e] * up, q = x[r][i][e + 16 / BITS] * up;
                    float p_high, q_high;
                    AS_HALVES(high[pair], p, q);
                    FROM_HALVES(p_high, q_high, high[pair]);
                    // An infinite number is all in its first half.
                    p_high = isinf(p_high) ? 0.0f : (p - p_high) * 2048.0f;
                    q_high = isinf(q_high) ? 0.0f : (q - q_high) * 2048.0f;
                    AS_HALVES(low[pair], p_high, q_high);
                }
                __local uint* to = eights + (2 * r * PITCH + place) * 4;
                *(__local uint4*)to = (uint4)(high[0], high[1], high[2], high[3]);
                *(__local uint4*)(to + PITCH * 4) = (uint4)(low[0], low[1], low[2], low[3]);
            }
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        #pragma unroll
        for (int d = 0; d < DEPTH; d++) {
            float sum[TILES][4];
            uint less[ALL], less_64[ALL], word[ALL][4];
            #pragma unroll
            for (int t = 0; t < TILES; t++)
                #pragma unroll
                for (int i = 0; i < 4; i++) sum[t][i] = 0.0f;
            #pragma unroll
            for (int c = 0; c < ALL; c++) {
                less[c] = MINUS_LARGE(zero[d][c]);
                less_64[c] = MINUS_64(zero[d][c]);
                word[c][0] = words[d][c].s0, word[c][1] = words[d][c].s1;
                word[c][2] = words[d][c].s2, word[c][3] = words[d][c].s3;
            }
            #pragma unroll
            for (int i = 0; i < PIECE / 8; i++) {
                const uint4 b = *(__local const uint4*)(
                    half_at + ((warp * DEPTH + d) * (PIECE / 8) + i) * 16);
                #pragma unroll
                for (int t = 0; t < TILES; t++) {
#if BITS == 8
                    MULTIPLY_WORD(word[2 * t][2 * i], word[2 * t + 1][2 * i], b.s0, b.s1)
                    MULTIPLY_WORD(word[2 * t][2 * i + 1], word[2 * t + 1][2 * i + 1], b.s2, b.s3)
#else
                    MULTIPLY_WORD(word[2 * t][i], word[2 * t + 1][i], b.s0, b.s1)
                    MULTIPLY_WORD(word[2 * t][i] >> 8, word[2 * t + 1][i] >> 8, b.s2, b.s3)
#endif
                }
            }
            #pragma unroll
            for (int c = 0; c < ALL; c++) {
                const float* of = sum[c / 2] + c % 2 * 2;
                const float both = fma(of[1], 1.0f / 2048, of[0]) * back;
                total[c] = fma(both, scale[d][c], total[c]);
            }
        }
    }
    if (quarter < MOST_ROWS)
        #pragma unroll
        for (int c = 0; c < ALL; c++)
            parts[((warp * ALL + c) * 8 + above) * MOST_ROWS + quarter] = total[c];
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int i = thread; i < 16 * TILES * MOST_ROWS; i += THREADS) {
        const int n = first + i / MOST_ROWS, r = i % MOST_ROWS;
        float all = 0.0f;
        #pragma unroll
        for (int w = 0; w < WARPS; w++) all += parts[w * 16 * TILES * MOST_ROWS + i];
        if (n < COLUMNS && r < ROWS) WRITE(all, r, n);
    }
}
