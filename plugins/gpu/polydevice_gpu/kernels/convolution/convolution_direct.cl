// convolution_direct: one work-item computes LANES output channels of PIXELS neighbours in a row.
// NDRange: {BLOCKS, TILES, batch * OUT_Z * OUT_Y}, first two exchanged unless BLOCKS_FIRST.
// Layouts: any input; best with its channels side by side.   Types: half, float, bytes; sums in SUM.
// Needs: KERNEL_*, STRIDE_*, DILATION_*, PAD_*, IN_*, OUT_*, GROUP_IN, GROUP_OUT, CHANNELS, LANES,
// PIXELS, GROUPED, WHOLE_BLOCKS, SERVES_ALL (numbers of rows of a product), SUM, ZERO (of bytes, the number that means 0); weights FILTER packed as [block, tap, in, lane].
#define JOIN2(a, b) a##b
#define JOIN(a, b) JOIN2(a, b)
#define JOIN3(a, b, c) JOIN(JOIN(a, b), c)
#define VECTOR JOIN(SUM, LANES)
#define WEIGHT(c) JOIN(convert_, VECTOR)(JOIN(FILTER_LOAD, LANES)(w + (c) * LANES))
#define TERM(x, c) (IN0_LOAD(IN0_AT(b, iz, iy, x, first + (c))) - ZERO)

#if WHOLE_BLOCKS
#define STORE(v, x) JOIN(WRITE, LANES)(v, b, z, y, x, block * LANES)
#else
#define STORE(v, x)                                                                                \
    if (block < BLOCKS - 1)                                                                        \
        JOIN(WRITE, LANES)(v, b, z, y, x, block * LANES);                                          \
    else                                                                                           \
        JOIN3(WRITE, LANES, _FIRST)(CHANNELS - block * LANES, v, b, z, y, x, block * LANES)
#endif

#if SERVES_ALL
// The last rows of a product, of which a tile has more: half a tile, or all, for which weights are read
// once. Up to three go alone: that takes no longer, and weights come from the nearest cache.
#define FEW_ROWS(COUNT)                                                                            \
    {                                                                                              \
        VECTOR few[COUNT];                                                                         \
        for (int p = 0; p < COUNT; p++) few[p] = (VECTOR)(0);                                      \
        for (int c = 0; c < GROUP_IN; c++) {                                                       \
            const VECTOR v = WEIGHT(c);                                                            \
            for (int p = 0; p < COUNT; p++) few[p] += TERM(min(x + p, IN_X - 1), c) * v;           \
        }                                                                                          \
        for (int p = 0; p < COUNT && x + p < OUT_X; p++) {                                         \
            STORE(few[p], x + p);                                                                  \
        }                                                                                          \
        return;                                                                                    \
    }
#endif

KERNEL(convolution_direct) {
    const int block = get_global_id(BLOCKS_FIRST ? 0 : 1), tile = get_global_id(BLOCKS_FIRST ? 1 : 0);
    const int y = get_global_id(2) % OUT_Y, z = get_global_id(2) / OUT_Y % OUT_Z;
    const int b = get_global_id(2) / OUT_Y / OUT_Z;
    if (block >= BLOCKS || tile >= TILES) return;
    const int x = tile * PIXELS, first = GROUPED ? block * LANES / GROUP_OUT * GROUP_IN : 0;
#if SERVES_ALL
    const int w = block * GROUP_IN * LANES;
    if (OUT_X - x < 4) {
        for (int row = x; row < OUT_X; row++) {
            VECTOR alone = (VECTOR)(0);
            for (int c = 0; c < GROUP_IN; c++) alone += TERM(row, c) * WEIGHT(c);
            STORE(alone, row);
        }
        return;
    }
    if (x + (PIXELS + 1) / 2 >= OUT_X) FEW_ROWS((PIXELS + 1) / 2)
    if (x + PIXELS > OUT_X) FEW_ROWS(PIXELS)
#endif
    VECTOR sum[PIXELS];
    for (int p = 0; p < PIXELS; p++) sum[p] = (VECTOR)(0);
    for (int kz = 0; kz < KERNEL_Z; kz++) {
        const int iz = z * STRIDE_Z - PAD_Z + kz * DILATION_Z;
        if (iz < 0 || iz >= IN_Z) continue;
        for (int ky = 0; ky < KERNEL_Y; ky++) {
            const int iy = y * STRIDE_Y - PAD_Y + ky * DILATION_Y;
            if (iy < 0 || iy >= IN_Y) continue;
            for (int kx = 0; kx < KERNEL_X; kx++) {
                const int ix = x * STRIDE_X - PAD_X + kx * DILATION_X;
                const int tap = (kz * KERNEL_Y + ky) * KERNEL_X + kx;
                const int w = (block * KERNEL_Z * KERNEL_Y * KERNEL_X + tap) * GROUP_IN * LANES;
                if (ix >= 0 && ix + (PIXELS - 1) * STRIDE_X < IN_X) {
                    for (int c = 0; c < GROUP_IN; c++) {
                        const VECTOR v = WEIGHT(c);
                        for (int p = 0; p < PIXELS; p++)
                            sum[p] += TERM(ix + p * STRIDE_X, c) * v;
                    }
                } else {
                    // At the border each pixel goes alone, so that none of them is tested per channel.
                    for (int p = 0; p < PIXELS; p++) {
                        const int px = ix + p * STRIDE_X;
                        if (px < 0 || px >= IN_X) continue;
                        for (int c = 0; c < GROUP_IN; c++) sum[p] += TERM(px, c) * WEIGHT(c);
                    }
                }
            }
        }
    }
    for (int p = 0; p < PIXELS; p++) {
        if (x + p >= OUT_X) break;
        STORE(sum[p], x + p);
    }
}
