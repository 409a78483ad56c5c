// matmul_compressed_mma: a work-group computes 16 * TILES columns of a product of MOST_ROWS rows with a
// matrix of 4 or 8 bits on matrix units; every warp takes other terms of all of them.
// NDRange: {THREADS * column tiles}; local size {THREADS}.
// Layouts: any rows; terms side by side.   Types: half, float; sums in float.
// Needs: BITS, TILES, WARPS, DEPTH (pieces of 16 bytes of a column that a work-item has under way),
// MOST_ROWS, ROWS, COLUMNS, COUNT (terms), BLOCK (terms that share a scale, a multiple of SHARE), BLOCKS (of a
// column); MATRIX as [column, term] of BITS bits, the lower first; SCALES and ZEROS as [column, block].
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
#include "include/halves_of_rows.cl"
// The matrix is read once, past the processor's own cache.
#define READ(to, from)                                                                      \
    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];"                 \
                 : "=r"((to).s0), "=r"((to).s1), "=r"((to).s2), "=r"((to).s3) : "l"(from))

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
            const int exponent = EXPONENT_FOR(of_all);
            if (quarter % MOST_ROWS == r) back = AS_FACTOR(254 - exponent);
            #pragma unroll
            for (int i = 0; i < EIGHTS_EACH; i++) {
                const int eight = i * THREADS + thread, piece = eight / (PIECE / 8);
                const int place = (piece / 4 * (PIECE / 8) + eight % (PIECE / 8)) * 4 + piece % 4;
                __local uint* to = eights + (2 * r * PITCH + place) * 4;
                STORE_HALVES(to, to + PITCH * 4, x[r][i], AS_FACTOR(exponent))
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
                    const int c = 2 * t;
                    MULTIPLY_WORD(sum[t], c, word[c][2 * i], word[c + 1][2 * i], b.s0, b.s1)
                    MULTIPLY_WORD(sum[t], c, word[c][2 * i + 1], word[c + 1][2 * i + 1], b.s2, b.s3)
#else
                    const int c = 2 * t;
                    MULTIPLY_WORD(sum[t], c, word[c][i], word[c + 1][i], b.s0, b.s1)
                    MULTIPLY_WORD(sum[t], c, word[c][i] >> 8, word[c + 1][i] >> 8, b.s2, b.s3)
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
