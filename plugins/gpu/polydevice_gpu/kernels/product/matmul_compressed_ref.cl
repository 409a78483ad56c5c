// matmul_compressed_ref: a work-group of SUBS times LANES work-items computes SUBS * COLUMNS_EACH columns
// of a product of MOST_ROWS rows with a matrix of 4 or 8 bits, of which each work-item reads 16 bytes
// at a time.
// NDRange: {LANES * column tiles, SUBS}; local size {LANES, SUBS}.
// Layouts: any rows; terms side by side.   Types: half, float; sums in float.
// Needs: BITS, LANES, SUBS, COLUMNS_EACH, MOST_ROWS, ROWS, COLUMNS, COUNT (terms), BLOCK (terms that
// share a scale), BLOCKS (of a column); MATRIX as [column, term] of BITS bits, the lower first;
// SCALES and ZEROS as [column, block].
// The rows go through local memory, a piece of CHUNK terms at a time, while the matrix's part of that
// is under way: what takes the time is waiting for memory, so all of it is asked for at once.
#define PIECE (128 / BITS)
#define CHUNK (LANES * 128 / MOST_ROWS)
#define PIECES (CHUNK / LANES / PIECE)
// Fours of a row are ordered so that work-items side by side read, and write, side by side.
#define FOURS (PIECE / 4)
#define APART (LANES + 8 / FOURS)
// An integer below 2^23 in the lower bits of this is that much more than 2^23.
#define LARGE 0x4B000000u
// So many numbers of a word are taken where they are, each so many times as large as the one before.
#define IN_PLACE (16 / BITS)
#define RADIX (1 << BITS)

KERNEL(matmul_compressed_ref) {
    LOCAL_ARRAY(float4, rows, MOST_ROWS, [PIECES * FOURS * APART], 16);
    LOCAL_ARRAY(float, parts, SUBS, [COLUMNS_EACH * MOST_ROWS][LANES], 4);
    const int lane = get_local_id(0), sub = get_local_id(1), thread = sub * LANES + lane;
    const int first = (get_group_id(0) * SUBS + sub) * COLUMNS_EACH;
    float sum[COLUMNS_EACH][MOST_ROWS];
    #pragma unroll
    for (int j = 0; j < COLUMNS_EACH; j++)
        #pragma unroll
        for (int r = 0; r < MOST_ROWS; r++) sum[j][r] = 0.0f;
    for (int start = 0; start < COUNT; start += CHUNK) {
        uint words[PIECES][COLUMNS_EACH][4];
        float scale[PIECES][COLUMNS_EACH], zero[PIECES][COLUMNS_EACH];
        #pragma unroll
        for (int p = 0; p < PIECES; p++) {
            const int k = min(start + (p * LANES + lane) * PIECE, COUNT - PIECE);
            #pragma unroll
            for (int j = 0; j < COLUMNS_EACH; j++) {
                const size_t n = min(first + j, COLUMNS - 1);
                vstore4(*(__global const uint4*)(matrix + (n * COUNT + k) / 8 * BITS), 0, words[p][j]);
                scale[p][j] = SCALES_LOAD(n * BLOCKS + k / BLOCK);
                zero[p][j] = zeros[n * BLOCKS + k / BLOCK];
            }
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        #pragma unroll
        for (int r = 0; r < MOST_ROWS; r++)
            #pragma unroll
            for (int i = 0; i < CHUNK / 4; i += LANES * SUBS) {
                const int four = i + thread, piece = four / FOURS;
                const int place = (piece / LANES * FOURS + four % FOURS) * APART + piece % LANES;
                const int k = start + four * 4;
                if (four < CHUNK / 4)
                    rows[r][place] = r < ROWS && k < COUNT ? IN0_LOAD4(IN0_AT(r, k)) : (float4)(0.0f);
            }
        barrier(CLK_LOCAL_MEM_FENCE);
        #pragma unroll
        for (int p = 0; p < PIECES; p++) {
            float product[IN_PLACE][COLUMNS_EACH][MOST_ROWS];
            #pragma unroll
            for (int i = 0; i < IN_PLACE; i++)
                #pragma unroll
                for (int j = 0; j < COLUMNS_EACH; j++)
                    #pragma unroll
                    for (int r = 0; r < MOST_ROWS; r++) product[i][j][r] = 0.0f;
            #pragma unroll
            for (int i = 0; i < PIECE; i += 4) {
                float x[MOST_ROWS][4];
                #pragma unroll
                for (int r = 0; r < MOST_ROWS; r++)
                    vstore4(rows[r][(p * FOURS + i / 4) * APART + lane], 0, x[r]);
                #pragma unroll
                for (int e = i; e < i + 4; e++) {
                    const int at = e % IN_PLACE;
                    const float radix = 1 << BITS * at;
                    #pragma unroll
                    for (int j = 0; j < COLUMNS_EACH; j++) {
                        const uint half_word = words[p][j][e * BITS / 32] >> (e * BITS / 16 % 2 * 16);
                        const uint bits = half_word & (RADIX - 1) << BITS * at;
                        const float w = as_float(LARGE | bits) - fma(zero[p][j], radix, 0x1p23f);
                        #pragma unroll
                        for (int r = 0; r < MOST_ROWS; r++)
                            product[at][j][r] = fma(x[r][e - i], w, product[at][j][r]);
                    }
                }
            }
            #pragma unroll
            for (int j = 0; j < COLUMNS_EACH; j++)
                #pragma unroll
                for (int r = 0; r < MOST_ROWS; r++) {
                    float total = product[IN_PLACE - 1][j][r];
                    #pragma unroll
                    for (int i = IN_PLACE - 2; i >= 0; i--)
                        total = fma(total, 1.0f / RADIX, product[i][j][r]);
                    sum[j][r] = fma(total, scale[p][j], sum[j][r]);
                }
        }
    }
    #pragma unroll
    for (int j = 0; j < COLUMNS_EACH; j++)
        #pragma unroll
        for (int r = 0; r < MOST_ROWS; r++) parts[sub][j * MOST_ROWS + r][lane] = sum[j][r];
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int i = lane; i < COLUMNS_EACH * MOST_ROWS; i += LANES) {
        const int n = first + i / MOST_ROWS, r = i % MOST_ROWS;
        float total = 0.0f;
        for (int l = 0; l < LANES; l++) total += parts[sub][i][(l + lane) % LANES];
        if (n < COLUMNS && r < ROWS) WRITE(total, r, n);
    }
}
