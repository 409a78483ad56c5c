// convolution_pack: one work-item puts one weight where convolution_direct reads it: [block, tap, in, lane].
// NDRange: {LANES, taps * GROUP_IN, blocks}; local size free.
// Layouts: any.   Types: half, float; floats are written.
// Needs: KERNEL_*, LANES, GROUP_OUT, GROUP_IN, CHANNELS; lanes behind the last channel are 0.
KERNEL(convolution_pack) {
    const int lane = get_global_id(0), f = get_global_id(2) * LANES + lane;
    const int c = get_global_id(1) % GROUP_IN, tap = get_global_id(1) / GROUP_IN;
    const int kx = tap % KERNEL_X, ky = tap / KERNEL_X % KERNEL_Y, kz = tap / KERNEL_X / KERNEL_Y;
    const int place = (get_global_id(2) * KERNEL_Z * KERNEL_Y * KERNEL_X + tap) * GROUP_IN + c;
    packed[place * LANES + lane] =
        f < CHANNELS ? IN1_LOAD(IN1_AT(f / GROUP_OUT, f % GROUP_OUT, c, kz, ky, kx)) : 0;
}
