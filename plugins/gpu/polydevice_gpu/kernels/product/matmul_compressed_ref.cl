// matmul_compressed_ref: a work-group of SUBS times LANES work-items computes SUBS * COLUMNS_EACH columns
// of a product of MOST_ROWS rows with a matrix of 4 or 8 bits, of which each work-item reads 16 bytes
// at a time.
// NDRange: {LANES * column tiles, SUBS}; local size {LANES, SUBS}.
// Layouts: any rows; terms side by side.   Types: half, float; sums in float.
// Needs: BITS, LANES, SUBS, COLUMNS_EACH, MOST_ROWS, ROWS, COLUMNS, COUNT (terms), BLOCK (terms that
// share a scale), BLOCKS (of a column); MATRIX as [column, term] of BITS bits, the lower first;
// SCALES and ZEROS as [column, block].
// The rows go through local memory, a piece of CHUNK terms at a time, in which the pieces of
// neighbouring work-items are one word further apart than their length, so that they lie in all banks.
#define PIECE (128 / BITS)
#define CHUNK (LANES * 128 / MOST_ROWS)
#define IN_WORD (32 / BITS)
#define MASK ((1u << BITS) - 1)
#define PLACE(k) ((k) + (k) / PIECE)
// An integer below 2^23 in the lower bits of this is that much more than 2^23.
#define LARGE 0x4B000000u

KERNEL(matmul_compressed_ref) {
    __local float rows[MOST_ROWS][PLACE(CHUNK)];
    __local float parts[SUBS][COLUMNS_EACH * MOST_ROWS][LANES];
    const int lane = get_local_id(0), sub = get_local_id(1), thread = sub * LANES + lane;
    const int first = (get_group_id(0) * SUBS + sub) * COLUMNS_EACH;
    float sum[COLUMNS_EACH][MOST_ROWS];
    #pragma unroll
    for (int j = 0; j < COLUMNS_EACH; j++)
        #pragma unroll
        for (int r = 0; r < MOST_ROWS; r++) sum[j][r] = 0.0f;
    for (int start = 0; start < COUNT; start += CHUNK) {
        const int count = min(CHUNK, COUNT - start);
        barrier(CLK_LOCAL_MEM_FENCE);
        for (int k = thread; k < count; k += LANES * SUBS)
            #pragma unroll
            for (int r = 0; r < MOST_ROWS; r++)
                rows[r][PLACE(k)] = r < ROWS ? IN0_LOAD(IN0_AT(r, start + k)) : 0.0f;
        barrier(CLK_LOCAL_MEM_FENCE);
        for (int k = lane * PIECE; k < count; k += LANES * PIECE) {
            const int block = (start + k) / BLOCK;
            uint words[COLUMNS_EACH][4];
            #pragma unroll
            for (int j = 0; j < COLUMNS_EACH; j++) {
                const size_t n = min(first + j, COLUMNS - 1);
                vstore4(*(__global const uint4*)(matrix + (n * COUNT + start + k) / 8 * BITS), 0, words[j]);
            }
            float product[COLUMNS_EACH][MOST_ROWS], zero[COLUMNS_EACH];
            #pragma unroll
            for (int j = 0; j < COLUMNS_EACH; j++) {
                zero[j] = as_float(LARGE) + zeros[min(first + j, COLUMNS - 1) * BLOCKS + block];
                #pragma unroll
                for (int r = 0; r < MOST_ROWS; r++) product[j][r] = 0.0f;
            }
            #pragma unroll
            for (int i = 0; i < PIECE; i++) {
                float x[MOST_ROWS];
                #pragma unroll
                for (int r = 0; r < MOST_ROWS; r++) x[r] = rows[r][PLACE(k) + i];
                #pragma unroll
                for (int j = 0; j < COLUMNS_EACH; j++) {
                    const uint bits = words[j][i / IN_WORD] >> (i % IN_WORD * BITS) & MASK;
                    const float w = as_float(LARGE | bits) - zero[j];
                    #pragma unroll
                    for (int r = 0; r < MOST_ROWS; r++) product[j][r] = fma(x[r], w, product[j][r]);
                }
            }
            #pragma unroll
            for (int j = 0; j < COLUMNS_EACH; j++) {
                const float scale = SCALES_LOAD(min(first + j, COLUMNS - 1) * BLOCKS + block);
                #pragma unroll
                for (int r = 0; r < MOST_ROWS; r++) sum[j][r] = fma(product[j][r], scale, sum[j][r]);
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
