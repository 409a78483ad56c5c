// matmul_compressed_rows: a work-item computes COLUMNS_EACH (8) columns of up to ROWS_EACH rows of a product
// with a matrix of 4 or 8 bits, of which it makes floats of some terms at a time.
// NDRange: {columns / COLUMNS_EACH, rows / ROWS_EACH}, both rounded up, {1, 1}: work-items have arrays.
// Layouts: any rows; terms side by side.   Types: half, float; sums in float.
// Needs: as matmul_compressed_ref, without lanes and MOST_ROWS; COLUMNS_EACH, ROWS_EACH and CHUNK (terms,
// a multiple of 32).
#define PIECE (128 / BITS)
#define BYTES(column, k) vload16(0, matrix + ((size_t)(column) * COUNT + (k)) / 8 * BITS)

static inline float sum_of(const float16 x) {
    const float8 eight = x.lo + x.hi;
    const float4 four = eight.lo + eight.hi;
    return four.x + four.y + (four.z + four.w);
}

#if BITS == 4
// Numbers of sixteen bytes in their order, the lower of a byte first.
static inline uchar16 first_half(const uchar16 low, const uchar16 high) {
    return (uchar16)(low.s0, high.s0, low.s1, high.s1, low.s2, high.s2, low.s3, high.s3,
                     low.s4, high.s4, low.s5, high.s5, low.s6, high.s6, low.s7, high.s7);
}
static inline uchar16 second_half(const uchar16 low, const uchar16 high) {
    return (uchar16)(low.s8, high.s8, low.s9, high.s9, low.sa, high.sa, low.sb, high.sb,
                     low.sc, high.sc, low.sd, high.sd, low.se, high.se, low.sf, high.sf);
}
#endif

// Write the sums of a row, at once: pointwise operations on them are computed in vectors.
#define STORE(each, row)                                                                           \
    {                                                                                              \
        const float8 all = vload8(0, each);                                                        \
        if (COLUMNS - n >= 8)                                                                      \
            WRITE8(all, row, n);                                                                   \
        else                                                                                       \
            WRITE8_FIRST(COLUMNS - n, all, row, n);                                                \
    }

// Sums of HERE rows from r on, and of all columns, of the terms that lie in w.
#define ADD_ROWS(HERE)                                                                             \
    {                                                                                              \
        float16 sum[HERE][COLUMNS_EACH];                                                           \
        _Pragma("unroll") for (int i = 0; i < HERE; i++)                                           \
            _Pragma("unroll") for (int c = 0; c < COLUMNS_EACH; c++) sum[i][c] = sums[r + i][c];   \
        for (int k = 0; k < terms; k += 16) {                                                      \
            float16 x[HERE];                                                                       \
            _Pragma("unroll") for (int i = 0; i < HERE; i++)                                       \
                x[i] = IN0_LOAD16(IN0_AT(top + r + i, from + k));                                  \
            _Pragma("unroll") for (int c = 0; c < COLUMNS_EACH; c++) {                             \
                const float16 of = vload16(0, w[c] + k);                                           \
                _Pragma("unroll") for (int i = 0; i < HERE; i++)                                   \
                    sum[i][c] = fma(x[i], of, sum[i][c]);                                          \
            }                                                                                      \
        }                                                                                          \
        _Pragma("unroll") for (int i = 0; i < HERE; i++)                                           \
            _Pragma("unroll") for (int c = 0; c < COLUMNS_EACH; c++) sums[r + i][c] = sum[i][c];   \
    }

KERNEL(matmul_compressed_rows) {
    const int n = get_global_id(0) * COLUMNS_EACH, top = get_global_id(1) * ROWS_EACH;
    if (n >= COLUMNS || top >= ROWS) return;
    const int rows = min(ROWS - top, ROWS_EACH);
    if (rows == 1) {  // floats that are used once are not kept
        float each[COLUMNS_EACH] = {0.0f};
        for (int c = n; c < min(n + COLUMNS_EACH, COLUMNS); c++) {
            float16 sum = (float16)(0.0f);
            for (int block = 0; block < BLOCKS; block++) {
                const float zero = zeros[c * BLOCKS + block];
                float16 product = (float16)(0.0f), second = product;
                for (int k = block * BLOCK; k < (block + 1) * BLOCK; k += PIECE) {
                    const uchar16 bytes = BYTES(c, k);
                    const float16 x = IN0_LOAD16(IN0_AT(top, k));
#if BITS == 8
                    product = fma(x, convert_float16(bytes) - zero, product);
#else
                    const uchar16 low = bytes & (uchar16)(15), high = bytes >> (uchar16)(4);
                    const float16 y = IN0_LOAD16(IN0_AT(top, k + 16));
                    product = fma(x, convert_float16(first_half(low, high)) - zero, product);
                    second = fma(y, convert_float16(second_half(low, high)) - zero, second);
#endif
                }
                sum = fma(product + second, (float16)(SCALES_LOAD(c * BLOCKS + block)), sum);
            }
            each[c - n] = sum_of(sum);
        }
        STORE(each, top)
        return;
    }
    float w[COLUMNS_EACH][CHUNK];
    float16 sums[ROWS_EACH][COLUMNS_EACH];
    for (int r = 0; r < rows; r++)
        for (int c = 0; c < COLUMNS_EACH; c++) sums[r][c] = (float16)(0.0f);
    for (int from = 0; from < COUNT; from += CHUNK) {
        const int terms = min(COUNT - from, CHUNK);
        for (int c = 0; c < COLUMNS_EACH; c++) {
            const int column = min(n + c, COLUMNS - 1);
            for (int k = 0, block = from / BLOCK; k < terms; block++) {
                const float zero = zeros[column * BLOCKS + block];
                const float scale = SCALES_LOAD(column * BLOCKS + block);
                for (const int end = min(terms, (block + 1) * BLOCK - from); k < end; k += PIECE) {
                    const uchar16 bytes = BYTES(column, from + k);
#if BITS == 8
                    vstore16((convert_float16(bytes) - zero) * scale, 0, w[c] + k);
#else
                    const uchar16 low = bytes & (uchar16)(15), high = bytes >> (uchar16)(4);
                    vstore16((convert_float16(first_half(low, high)) - zero) * scale, 0, w[c] + k);
                    vstore16((convert_float16(second_half(low, high)) - zero) * scale, 1, w[c] + k);
#endif
                }
            }
        }
        int r = 0;
        for (; r + 2 <= rows; r += 2) ADD_ROWS(2)
        if (r < rows) ADD_ROWS(1)
    }
    for (int r = 0; r < rows; r++) {
        float each[COLUMNS_EACH];
        for (int c = 0; c < COLUMNS_EACH; c++) each[c] = sum_of(sums[r][c]);
        STORE(each, top + r)
    }
}
