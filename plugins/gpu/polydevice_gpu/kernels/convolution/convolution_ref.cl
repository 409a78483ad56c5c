// convolution_ref: one work-item computes one element of the result.
// NDRange: {OUT_X, OUT_Z * OUT_Y, batch * CHANNELS}; local size free.
// Layouts: any.   Types: any; sums in SUM.
// Needs: KERNEL_*, STRIDE_*, DILATION_*, PAD_*, IN_*, OUT_* per axis, GROUP_OUT, GROUP_IN, CHANNELS,
// SUM, ZERO (of bytes, the number that means 0), ROUNDED(x), which is x, or x rounded.
// Reads every input once per use; meant for correctness, not speed.
KERNEL(convolution_ref) {
    const int x = get_global_id(0), y = get_global_id(1) % OUT_Y, z = get_global_id(1) / OUT_Y;
    const int f = get_global_id(2) % CHANNELS, b = get_global_id(2) / CHANNELS;
    const int g = f / GROUP_OUT;
    SUM sum = 0;
    for (int c = 0; c < GROUP_IN; c++)
        for (int kz = 0; kz < KERNEL_Z; kz++)
            for (int ky = 0; ky < KERNEL_Y; ky++)
                for (int kx = 0; kx < KERNEL_X; kx++) {
                    const int iz = z * STRIDE_Z - PAD_Z + kz * DILATION_Z;
                    const int iy = y * STRIDE_Y - PAD_Y + ky * DILATION_Y;
                    const int ix = x * STRIDE_X - PAD_X + kx * DILATION_X;
                    if (iz < 0 || iz >= IN_Z || iy < 0 || iy >= IN_Y || ix < 0 || ix >= IN_X)
                        continue;
                    sum += (ROUNDED(IN0_LOAD(IN0_AT(b, g * GROUP_IN + c, iz, iy, ix))) - ZERO) *
                           IN1_LOAD(IN1_AT(g, f % GROUP_OUT, c, kz, ky, kx));
                }
    WRITE(sum, b, z, y, x, f);
}
