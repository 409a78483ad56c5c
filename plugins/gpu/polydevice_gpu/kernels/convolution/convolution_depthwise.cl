// convolution_depthwise: one work-item computes LANES channels of PIXELS neighbours in a row.
// NDRange: {BLOCKS, TILES, batch * OUT_Z * OUT_Y}, first two exchanged unless BLOCKS_FIRST.
// Layouts: input with channels side by side.   Types: half, float, bytes; sums in float.
// Needs: KERNEL_*, STRIDE_*, DILATION_*, PAD_*, IN_*, OUT_*, CHANNELS, LANES, PIXELS; weights FILTER
// packed as [tap, channel]; LANES divides CHANNELS; READS_AHEAD (where waiting
// for memory takes more than computing), SLIDES (taps are neighbours, and few); SUM (of the result), ZERO (the
// number that means 0, a macro where that is 0).
#define JOIN2(a, b) a##b
#define JOIN(a, b) JOIN2(a, b)
#define JOIN3(a, b, c) JOIN(JOIN(a, b), c)
#define VECTOR JOIN(float, LANES)
#define READ(z, y, x) JOIN(convert_, VECTOR)(JOIN(IN0_LOAD, LANES)(IN0_AT(b, z, y, x, f)))
#define WEIGHTS(tap) JOIN(convert_, VECTOR)(JOIN(FILTER_LOAD, LANES)((tap) * CHANNELS + f))
#define SPAN ((PIXELS - 1) * STRIDE_X + KERNEL_X)

KERNEL(convolution_depthwise) {
    const int block = get_global_id(BLOCKS_FIRST ? 0 : 1), tile = get_global_id(BLOCKS_FIRST ? 1 : 0);
    const int y = get_global_id(2) % OUT_Y, z = get_global_id(2) / OUT_Y % OUT_Z;
    const int b = get_global_id(2) / OUT_Y / OUT_Z;
    if (block >= BLOCKS || tile >= TILES) return;
    const int x = tile * PIXELS, f = block * LANES;
    VECTOR sum[PIXELS];
    #pragma unroll
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
                const VECTOR w = WEIGHTS(tap);
                for (int p = 0; p < PIXELS; p++) {
                    const int px = ix + p * STRIDE_X, near_x = clamp(px, 0, IN_X - 1);
                    const VECTOR term = READ(near_z, near_y, near_x) - ZERO;
                    const bool inside = iz == near_z && iy == near_y && px == near_x;
                    sum[p] = inside ? sum[p] + term * w : sum[p];
                }
            }
        }
    }
#else
#if SLIDES && !defined(ZERO)
    VECTOR total = (VECTOR)(0);  // of the weights: what ZERO takes from each sum, once for all
#endif
    for (int kz = 0; kz < KERNEL_Z; kz++) {
        const int iz = z * STRIDE_Z - PAD_Z + kz * DILATION_Z;
        if (iz < 0 || iz >= IN_Z) continue;
        for (int ky = 0; ky < KERNEL_Y; ky++) {
            const int iy = y * STRIDE_Y - PAD_Y + ky * DILATION_Y;
            if (iy < 0 || iy >= IN_Y) continue;
            const int ix = x * STRIDE_X - PAD_X, tap = (kz * KERNEL_Y + ky) * KERNEL_X;
#if SLIDES
            // Each pixel is read and converted once for all the sums of its row that it is part of.
            const bool inside = ix >= 0 && ix + SPAN <= IN_X;
            VECTOR w[KERNEL_X];
            #pragma unroll
            for (int kx = 0; kx < KERNEL_X; kx++) w[kx] = WEIGHTS(tap + kx);
            #pragma unroll
            for (int i = 0; i < SPAN; i++) {
                const VECTOR v = inside || (ix + i >= 0 && ix + i < IN_X)
                                     ? READ(iz, iy, ix + i) : (VECTOR)(ZERO);
                #pragma unroll
                for (int kx = 0; kx < KERNEL_X; kx++)
                    if (i >= kx && (i - kx) % STRIDE_X == 0 && (i - kx) / STRIDE_X < PIXELS)
                        sum[(i - kx) / STRIDE_X] += v * w[kx];
            }
#ifndef ZERO
            #pragma unroll
            for (int kx = 0; kx < KERNEL_X; kx++) total += w[kx];
#endif
#else
            for (int kx = 0; kx < KERNEL_X; kx++) {
                const VECTOR w = WEIGHTS(tap + kx);
                #pragma unroll
                for (int p = 0; p < PIXELS; p++) {
                    const int px = ix + kx * DILATION_X + p * STRIDE_X;
                    if (px >= 0 && px < IN_X) sum[p] += (READ(iz, iy, px) - ZERO) * w;
                }
            }
#endif
        }
    }
#if SLIDES && !defined(ZERO)
    #pragma unroll
    for (int p = 0; p < PIXELS; p++) sum[p] -= total * ZERO;
#endif
#endif
    for (int p = 0; p < PIXELS; p++)
        if (x + p < OUT_X) JOIN(WRITE, LANES)(JOIN3(convert_, SUM, LANES)(sum[p]), b, z, y, x + p, f);
}
