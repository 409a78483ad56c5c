// deconvolution_ref: one work-item gathers one element of a transposed convolution's result.
// NDRange: {OUT_X, OUT_Z * OUT_Y, batch * CHANNELS}; local size free.
// Layouts: any.   Types: any; sums in the compute type of the input.
// Needs: KERNEL_*, STRIDE_*, DILATION_*, PAD_* (crop), IN_*, OUT_*, GROUP_OUT, GROUP_IN, CHANNELS.
// A window position contributes only where the stride divides its distance.
KERNEL(deconvolution_ref) {
    const int x = get_global_id(0), y = get_global_id(1) % OUT_Y, z = get_global_id(1) / OUT_Y;
    const int f = get_global_id(2) % CHANNELS, b = get_global_id(2) / CHANNELS;
    const int g = f / GROUP_OUT;
    IN0_C sum = 0;
    for (int kz = 0; kz < KERNEL_Z; kz++) {
        const int tz = z + PAD_Z - kz * DILATION_Z;
        if (tz < 0 || tz % STRIDE_Z || tz / STRIDE_Z >= IN_Z) continue;
        for (int ky = 0; ky < KERNEL_Y; ky++) {
            const int ty = y + PAD_Y - ky * DILATION_Y;
            if (ty < 0 || ty % STRIDE_Y || ty / STRIDE_Y >= IN_Y) continue;
            for (int kx = 0; kx < KERNEL_X; kx++) {
                const int tx = x + PAD_X - kx * DILATION_X;
                if (tx < 0 || tx % STRIDE_X || tx / STRIDE_X >= IN_X) continue;
                for (int c = 0; c < GROUP_IN; c++)
                    sum += IN0_LOAD(IN0_AT(b, g * GROUP_IN + c, tz / STRIDE_Z, ty / STRIDE_Y,
                                           tx / STRIDE_X)) *
                           IN1_LOAD(IN1_AT(g, c, f % GROUP_OUT, kz, ky, kx));
            }
        }
    }
    WRITE(sum, b, z, y, x, f);
}
