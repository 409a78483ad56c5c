// adaptive_pooling_ref: one work-item computes one bin of an adaptive pooling.
// NDRange: {OUT_X, OUT_Z * OUT_Y, batch * CHANNELS}; local size free.
// Layouts: any.   Types: floating point; sums in the compute type.
// Needs: IN_*, OUT_* per axis, CHANNELS, AVERAGE, LOWEST.
// Bin i of n over a size s covers [floor(i * s / n), ceil((i + 1) * s / n)).
#define FIRST(i, s, n) ((i) * (s) / (n))
#define LAST(i, s, n) ((((i) + 1) * (s) + (n) - 1) / (n))

KERNEL(adaptive_pooling_ref) {
    const int x = get_global_id(0), y = get_global_id(1) % OUT_Y, z = get_global_id(1) / OUT_Y;
    const int c = get_global_id(2) % CHANNELS, b = get_global_id(2) / CHANNELS;
    IN0_C result = AVERAGE ? (IN0_C)0 : (IN0_C)LOWEST;
    int count = 0, found = -1;
    for (int iz = FIRST(z, IN_Z, OUT_Z); iz < LAST(z, IN_Z, OUT_Z); iz++)
        for (int iy = FIRST(y, IN_Y, OUT_Y); iy < LAST(y, IN_Y, OUT_Y); iy++)
            for (int ix = FIRST(x, IN_X, OUT_X); ix < LAST(x, IN_X, OUT_X); ix++) {
                const IN0_C v = IN0_LOAD(IN0_AT(b, c, iz, iy, ix));
                count++;
                if (AVERAGE) {
                    result += v;
                } else if (found < 0 || v > result) {
                    result = v;
                    found = (iz * IN_Y + iy) * IN_X + ix;
                }
            }
#if AVERAGE
    result /= (IN0_C)count;
#else
    OUT1_STORE(OUT1_AT(b, c, z, y, x), found);
#endif
    WRITE(result, b, z, y, x, c);
}
