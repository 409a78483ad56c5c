// matmul_compressed_stream: a work-group of THREADS work-items computes COLUMNS_EACH columns of a product
// of MOST_ROWS rows with a matrix of 4 or 8 bits. Each work-item keeps its terms of the rows, and
// reads 16 bytes of one column after the other, AHEAD of them at a time.
// NDRange: {THREADS * column tiles}; local size {THREADS}.
// Layouts: any rows; terms side by side.   Types: half, float; sums in float.
// Needs: BITS, THREADS, PIECES (of 16 bytes that a work-item reads of a column; THREADS * PIECES of
// them hold all terms), COLUMNS_EACH (a multiple of AHEAD), AHEAD, MOST_ROWS, ROWS, COLUMNS, COUNT
// (terms), BLOCK (terms that share a scale), BLOCKS (of a column); MATRIX as [column, term] of BITS
// bits, the lower first; SCALES and ZEROS as [column, block].
#define PIECE (128 / BITS)
// An integer below 2^23 in the lower bits of this is that much more than 2^23.
#define LARGE 0x4B000000u
// So many numbers of a word are taken where they are, each so many times as large as the one before.
#define IN_PLACE (16 / BITS)
#define RADIX (1 << BITS)
#define FETCH(slot, column)                                                                 \
    {                                                                                       \
        const size_t n = min(first + (column), COLUMNS - 1);                                \
        _Pragma("unroll") for (int p = 0; p < PIECES; p++) {                                \
            words[slot][p] =                                                                \
                *(__global const uint4*)(matrix + (n * COUNT + term[p]) / 8 * BITS);        \
            scale[slot][p] = SCALES_LOAD(n * BLOCKS + block[p]);                            \
            zero[slot][p] = zeros[n * BLOCKS + block[p]];                                   \
        }                                                                                   \
    }

KERNEL(matmul_compressed_stream) {
    LOCAL_ARRAY(float, parts, COLUMNS_EACH, [MOST_ROWS][THREADS], 4);
    const int thread = get_local_id(0), first = get_group_id(0) * COLUMNS_EACH;
    int term[PIECES], block[PIECES];
    uint4 words[AHEAD][PIECES];
    float scale[AHEAD][PIECES], x[PIECES][MOST_ROWS][PIECE];
    uchar zero[AHEAD][PIECES];
    #pragma unroll
    for (int p = 0; p < PIECES; p++) {
        term[p] = min((p * THREADS + thread) * PIECE, COUNT - PIECE);
        block[p] = term[p] / BLOCK;
    }
    #pragma unroll
    for (int i = 0; i < AHEAD; i++) FETCH(i, i)
    #pragma unroll
    for (int p = 0; p < PIECES; p++)
        #pragma unroll
        for (int r = 0; r < MOST_ROWS; r++)
            #pragma unroll
            for (int i = 0; i < PIECE; i += 4) {
                const int inside = r < ROWS && (p * THREADS + thread) * PIECE < COUNT;
                const float4 four = inside ? IN0_LOAD4(IN0_AT(r, term[p] + i)) : (float4)(0.0f);
                vstore4(four, 0, x[p][r] + i);
                #pragma unroll
                for (int e = i; e < i + 4; e++) x[p][r][e] *= 1.0f / (1 << BITS * (e % IN_PLACE));
            }
    #pragma unroll 1
    for (int j = 0; j < COLUMNS_EACH; j += AHEAD) {
        #pragma unroll
        for (int i = 0; i < AHEAD; i++) {
            float sum[MOST_ROWS];
            #pragma unroll
            for (int r = 0; r < MOST_ROWS; r++) sum[r] = 0.0f;
            #pragma unroll
            for (int p = 0; p < PIECES; p++) {
                uint word[4];
                float even[MOST_ROWS], odd[MOST_ROWS];
                vstore4(words[i][p], 0, word);
                #pragma unroll
                for (int r = 0; r < MOST_ROWS; r++) even[r] = odd[r] = 0.0f;
                #pragma unroll
                for (int e = 0; e < PIECE; e++) {
                    const int at = e % IN_PLACE;
                    const float radix = 1 << BITS * at;
                    const uint half_word = word[e * BITS / 32] >> (e * BITS / 16 % 2 * 16);
                    const uint bits = half_word & (RADIX - 1) << BITS * at;
                    const float w = as_float(LARGE | bits) - fma((float)zero[i][p], radix, 0x1p23f);
                    #pragma unroll
                    for (int r = 0; r < MOST_ROWS; r++)
                        if (e % 2) odd[r] = fma(x[p][r][e], w, odd[r]);
                        else even[r] = fma(x[p][r][e], w, even[r]);
                }
                #pragma unroll
                for (int r = 0; r < MOST_ROWS; r++)
                    sum[r] = fma(even[r] + odd[r], scale[i][p], sum[r]);
            }
            #pragma unroll
            for (int r = 0; r < MOST_ROWS; r++) parts[j + i][r][thread] = sum[r];
            if (j + AHEAD < COLUMNS_EACH) FETCH(i, j + AHEAD + i)
        }
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    // Each work-item adds up what is LANES apart; what it leaves in place of the first, one adds up.
    for (int i = thread; i < COLUMNS_EACH * MOST_ROWS * LANES; i += THREADS) {
        __local float* of = parts[i / LANES / MOST_ROWS][i / LANES % MOST_ROWS];
        float total = 0.0f;
        #pragma unroll
        for (int l = 0; l < THREADS; l += LANES) total += of[i % LANES + l];
        of[i % LANES] = total;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int i = thread; i < COLUMNS_EACH * MOST_ROWS; i += THREADS) {
        const int n = first + i / MOST_ROWS, r = i % MOST_ROWS;
        float total = 0.0f;
        #pragma unroll
        for (int l = 0; l < LANES; l++) total += parts[i / MOST_ROWS][r][(l + thread) % LANES];
        if (n < COLUMNS && r < ROWS) WRITE(total, r, n);
    }
}
