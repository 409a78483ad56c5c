// matmul_compressed_vector: a work-item computes one column of a product of MOST_ROWS rows with a
// matrix of 4 or 8 bits, 16 bytes at a time.
// NDRange: {COLUMNS}; local size free.
// Layouts: any rows; terms side by side.   Types: half, float; sums in float.
// Needs: as matmul_compressed_ref, without lanes.
#define PIECE (128 / BITS)

KERNEL(matmul_compressed_vector) {
    const int n = get_global_id(0);
    if (n >= COLUMNS) return;
    float sum[MOST_ROWS];
    #pragma unroll
    for (int r = 0; r < MOST_ROWS; r++) sum[r] = 0.0f;
    for (int block = 0; block < BLOCKS; block++) {
        const float zero = zeros[n * BLOCKS + block];
        float16 product[MOST_ROWS];
        #pragma unroll
        for (int r = 0; r < MOST_ROWS; r++) product[r] = (float16)(0.0f);
        for (int k = block * BLOCK; k < (block + 1) * BLOCK; k += PIECE) {
            const uchar16 bytes = vload16(0, matrix + ((size_t)n * COUNT + k) / 8 * BITS);
#if BITS == 8
            const float16 w = convert_float16(bytes) - zero;
            #pragma unroll
            for (int r = 0; r < MOST_ROWS; r++)
                product[r] = fma(IN0_LOAD16(IN0_AT(min(r, ROWS - 1), k)), w, product[r]);
#else
            const float16 low = convert_float16(bytes & (uchar16)(15)) - zero;
            const float16 high = convert_float16(bytes >> (uchar16)(4)) - zero;
            #pragma unroll
            for (int r = 0; r < MOST_ROWS; r++) {
                const float16 x = IN0_LOAD16(IN0_AT(min(r, ROWS - 1), k));
                const float16 y = IN0_LOAD16(IN0_AT(min(r, ROWS - 1), k + 16));
                product[r] = fma((float16)(x.even, y.even), low, product[r]);
                product[r] = fma((float16)(x.odd, y.odd), high, product[r]);
            }
#endif
        }
        const float scale = SCALES_LOAD(n * BLOCKS + block);
        #pragma unroll
        for (int r = 0; r < MOST_ROWS; r++) {
            const float8 eight = product[r].lo + product[r].hi;
            const float4 four = eight.lo + eight.hi;
            sum[r] = fma(four.x + four.y + (four.z + four.w), scale, sum[r]);
        }
    }
    #pragma unroll
    for (int r = 0; r < MOST_ROWS; r++)
        if (r < ROWS) WRITE(sum[r], r, n);
}
