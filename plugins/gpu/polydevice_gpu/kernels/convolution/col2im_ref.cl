// col2im_ref: one work-item adds up one element of an image from the windows that cover it.
// NDRange: {width, depth * OUT_Y, batch * CHANNELS}; local size free.
// Layouts: any.   Types: any; sums in the compute type.
// Needs: KERNEL_*, STRIDE_*, DILATION_*, PAD_*, PLACES_* (windows along each axis), OUT_Y, CHANNELS.
KERNEL(col2im_ref) {
    const int x = get_global_id(0), y = get_global_id(1) % OUT_Y, z = get_global_id(1) / OUT_Y;
    const int c = get_global_id(2) % CHANNELS, b = get_global_id(2) / CHANNELS;
    IN0_C sum = 0;
    for (int kz = 0; kz < KERNEL_Z; kz++) {
        const int tz = z + PAD_Z - kz * DILATION_Z;
        if (tz < 0 || tz % STRIDE_Z || tz / STRIDE_Z >= PLACES_Z) continue;
        for (int ky = 0; ky < KERNEL_Y; ky++) {
            const int ty = y + PAD_Y - ky * DILATION_Y;
            if (ty < 0 || ty % STRIDE_Y || ty / STRIDE_Y >= PLACES_Y) continue;
            for (int kx = 0; kx < KERNEL_X; kx++) {
                const int tx = x + PAD_X - kx * DILATION_X;
                if (tx < 0 || tx % STRIDE_X || tx / STRIDE_X >= PLACES_X) continue;
                const int column = ((c * KERNEL_Z + kz) * KERNEL_Y + ky) * KERNEL_X + kx;
                const int place = (tz / STRIDE_Z * PLACES_Y + ty / STRIDE_Y) * PLACES_X + tx / STRIDE_X;
                sum += IN0_LOAD(IN0_AT(b, column, place));
            }
        }
    }
    WRITE(sum, b, c, z, y, x);
}
