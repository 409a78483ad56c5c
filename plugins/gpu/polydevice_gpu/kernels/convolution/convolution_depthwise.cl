// convolution_depthwise: one work-item computes LANES channels of PIXELS neighbours in a row.
// NDRange: {BLOCKS, TILES, batch * OUT_Z * OUT_Y}, first two exchanged unless BLOCKS_FIRST.
// Layouts: input with channels side by side.   Types: half, float, bytes; sums in float.
// Needs: KERNEL_*, STRIDE_*, DILATION_*, PAD_*, IN_*, OUT_*, CHANNELS, LANES, PIXELS; weights FILTER
// packed as [tap, channel]; LANES divides CHANNELS; READS_AHEAD (where waiting
// for memory takes more than computing); SUM (of the result), ZERO (of bytes, the number that means 0).
#define JOIN2(a, b) a##b
#define JOIN(a, b) JOIN2(a, b)
#define JOIN3(a, b, c) JOIN(JOIN(a, b), c)
#define VECTOR JOIN(float, LANES)
#define TERMS(z, y, x) \
    (JOIN(convert_, VECTOR)(JOIN(IN0_LOAD, LANES)(IN0_AT(b, z, y, x, f))) - ZERO)

KERNEL(convolution_depthwise) {
    const int block = get_global_id(BLOCKS_FIRST ? 0 : 1), tile = get_global_id(BLOCKS_FIRST ? 1 : 0);
    const int y = get_global_id(2) % OUT_Y, z = get_global_id(2) / OUT_Y % OUT_Z;
    const int b = get_global_id(2) / OUT_Y / OUT_Z;
    if (block >= BLOCKS || tile >= TILES) return;
    const int x = tile * PIXELS, f = block * LANES;
    VECTOR sum[PIXELS];
    for (int p = 0; p < PIXELS; p++) sum[p] = (VECTOR)(0);
#if READS_AHEAD
    // No branches: loads of all taps are on their way at once. What lies outside is read at the border.
    for (int kz = 0; kz < KERNEL_Z; kz++) {
        const int iz = z * STRIDE_Z - PAD_Z + kz * DILATION_Z, near_z = clamp(iz, 0, IN_Z - 1);
        for (int ky = 0; ky < KERNEL_Y; ky++) {
            const int iy = y * STRIDE_Y - PAD_Y + ky * DILATION_Y, near_y = clamp(iy, 0, IN_Y - 1);
            for (int kx = 0; kx < KERNEL_X; kx++) {
                const int ix = x * STRIDE_X - PAD_X + kx * DILATION_X;
                const int tap = (kz * KERNEL_Y + ky) * KERNEL_X + kx;
                const VECTOR w =
                    JOIN(convert_, VECTOR)(JOIN(FILTER_LOAD, LANES)(tap * CHANNELS + f));
                for (int p = 0; p < PIXELS; p++) {
                    const int px = ix + p * STRIDE_X, near_x = clamp(px, 0, IN_X - 1);
                    const VECTOR term = TERMS(near_z, near_y, near_x);
                    const bool inside = iz == near_z && iy == near_y && px == near_x;
                    sum[p] = inside ? sum[p] + term * w : sum[p];
                }
            }
        }
    }
#else
    for (int kz = 0; kz < KERNEL_Z; kz++) {
        const int iz = z * STRIDE_Z - PAD_Z + kz * DILATION_Z;
        if (iz < 0 || iz >= IN_Z) continue;
        for (int ky = 0; ky < KERNEL_Y; ky++) {
            const int iy = y * STRIDE_Y - PAD_Y + ky * DILATION_Y;
            if (iy < 0 || iy >= IN_Y) continue;
            for (int kx = 0; kx < KERNEL_X; kx++) {
                const int ix = x * STRIDE_X - PAD_X + kx * DILATION_X;
                const int tap = (kz * KERNEL_Y + ky) * KERNEL_X + kx;
                const VECTOR w =
                    JOIN(convert_, VECTOR)(JOIN(FILTER_LOAD, LANES)(tap * CHANNELS + f));
                if (ix >= 0 && ix + (PIXELS - 1) * STRIDE_X < IN_X) {
                    for (int p = 0; p < PIXELS; p++) sum[p] += TERMS(iz, iy, ix + p * STRIDE_X) * w;
                } else {
                    for (int p = 0; p < PIXELS; p++) {
                        const int px = ix + p * STRIDE_X;
                        if (px >= 0 && px < IN_X) sum[p] += TERMS(iz, iy, px) * w;
                    }
                }
            }
        }
    }
#endif
    for (int p = 0; p < PIXELS; p++)
        if (x + p < OUT_X) JOIN(WRITE, LANES)(JOIN3(convert_, SUM, LANES)(sum[p]), b, z, y, x + p, f);
}
