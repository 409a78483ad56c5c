// lrn_ref: one work-item computes one element of a local response normalisation.
// NDRange: {SIZE_2, SIZE_1 * SIZE_0, all other axes}; local size free.
// Layouts: any.   Types: half, float; sums in float.
// Needs: SIZE_0 … SIZE_2 (normalised axes, 1 where there are fewer), BEFORE and AFTER (window),
// ALPHA (divided by the window's elements), BETA, BIAS.
KERNEL(lrn_ref) {
    const int i2 = get_global_id(0), i1 = get_global_id(1) % SIZE_1, i0 = get_global_id(1) / SIZE_1;
    const int rest = get_global_id(2);
    IN0_C squares = 0;
    for (int a = max(i0 - BEFORE, 0); a <= min(i0 + AFTER, SIZE_0 - 1); a++)
        for (int b = max(i1 - BEFORE, 0); b <= min(i1 + AFTER, SIZE_1 - 1); b++)
            for (int c = max(i2 - BEFORE, 0); c <= min(i2 + AFTER, SIZE_2 - 1); c++) {
                const IN0_C v = IN0_LOAD(IN0_AT(rest, a, b, c));
                squares += v * v;
            }
    const IN0_C v = IN0_LOAD(IN0_AT(rest, i0, i1, i2));
    WRITE(v / pow(BIAS + ALPHA * squares, (IN0_C)BETA), rest, i0, i1, i2);
}
