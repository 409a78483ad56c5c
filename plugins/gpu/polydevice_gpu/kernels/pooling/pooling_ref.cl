// pooling_ref: one work-item computes one element of an average or maximum pooling.
// NDRange: {OUT_X, OUT_Z * OUT_Y, batch * CHANNELS}; local size free.
// Layouts: any.   Types: any; averages of floats in float, of integers in long.
// Needs: KERNEL_*, STRIDE_*, DILATION_*, PAD_*, PAD_END_*, IN_*, OUT_*, CHANNELS, AVERAGE,
// EXCLUDE_PAD, COUNT_WHOLE, LOWEST, INDICES; with INDICES BATCH_COUNTS and CHANNEL_COUNTS (what an index spans).
#include "include/window.cl"
KERNEL(pooling_ref) {
    const int x = get_global_id(0), y = get_global_id(1) % OUT_Y, z = get_global_id(1) / OUT_Y;
    const int c = get_global_id(2) % CHANNELS, b = get_global_id(2) / CHANNELS;
    const int z0 = z * STRIDE_Z - PAD_Z, y0 = y * STRIDE_Y - PAD_Y, x0 = x * STRIDE_X - PAD_X;
    const int count = COUNTED(z0, y0, x0);
    IN0_C result = AVERAGE ? (IN0_C)0 : (IN0_C)LOWEST;
    long found = -1;
    FOR_WINDOW(kz, Z, z0, IN_Z)
        FOR_WINDOW(ky, Y, y0, IN_Y)
            FOR_WINDOW(kx, X, x0, IN_X) {
                const int iz = z0 + kz * DILATION_Z, iy = y0 + ky * DILATION_Y, ix = x0 + kx * DILATION_X;
                if (iz < 0 || iz >= IN_Z || iy < 0 || iy >= IN_Y || ix < 0 || ix >= IN_X) continue;
                const IN0_C v = IN0_LOAD(IN0_AT(b, c, iz, iy, ix));
                if (AVERAGE) {
                    result += v;
                } else if (found < 0 || v > result) {
                    result = v;
                    found = ((long)iz * IN_Y + iy) * IN_X + ix;
                }
            }
    if (AVERAGE) result = count > 0 ? result / (IN0_C)count : 0;
#if INDICES
    if (CHANNEL_COUNTS) found += (long)c * IN_Z * IN_Y * IN_X;
    if (BATCH_COUNTS) found += (long)b * CHANNELS * IN_Z * IN_Y * IN_X;
    OUT1_STORE(OUT1_AT(b, c, z, y, x), found);
#endif
    WRITE(result, b, z, y, x, c);
}
