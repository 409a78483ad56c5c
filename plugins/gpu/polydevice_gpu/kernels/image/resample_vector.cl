// resample_vector: one work-item computes WIDTH neighbours along an axis that is not resampled, of
// POSITIONS results along the last one that is.
// NDRange: {ceil(INNER / WIDTH) * OUTER, ceil(OUT_2 / POSITIONS), OUT_1 * OUT_0}; local size free.
// Layouts: input with contiguous elements along that axis; result any.
// Types: half, float and bytes, integers rounded and saturated; sums in float.
// Needs: as resample_ref, and MADE(sum) (as it is stored), WIDTH, INNER (elements along that axis),
// OUTER (of the other axes), CHUNKS (vectors along the axis), POSITIONS, TURNED (whether results lie
// otherwise: each cache line is written at once then). INNER is at least WIDTH; the last vector
// begins that far before the end, and what it shares with the one before is computed twice.
#define JOIN2(a, b) a##b
#define JOIN(a, b) JOIN2(a, b)
#define VECTOR JOIN(float, WIDTH)

KERNEL(resample_vector) {
    const int c = min((int)get_global_id(0) % CHUNKS * WIDTH, INNER - WIDTH);
    const int outer = get_global_id(0) / CHUNKS, first = get_global_id(1) * POSITIONS;
    const int o1 = get_global_id(2) % OUT_1, o0 = get_global_id(2) / OUT_1;
    if (outer >= OUTER || first >= OUT_2 || o0 >= OUT_0) return;
#if TURNED
    IN0_C made[POSITIONS][WIDTH];
#endif
    const int end = min(first + POSITIONS, OUT_2);
    for (int o2 = first; o2 < end; o2++) {
        VECTOR sum = 0;
        for (int t0 = 0; t0 < TAPS_0; t0++)
            for (int t1 = 0; t1 < TAPS_1; t1++)
                for (int t2 = 0; t2 < TAPS_2; t2++)
                    sum += (VECTOR)(WEIGHT_0(o0, t0) * WEIGHT_1(o1, t1) * WEIGHT_2(o2, t2)) *
                           JOIN(convert_, VECTOR)(JOIN(IN0_LOAD, WIDTH)(
                               IN0_AT(INDEX_0(o0, t0), INDEX_1(o1, t1), INDEX_2(o2, t2), outer, c)));
#if TURNED
        JOIN(vstore, WIDTH)(MADE(sum), 0, made[o2 - first]);
#else
        JOIN(WRITE, WIDTH)(MADE(sum), o0, o1, o2, outer, c);
#endif
    }
#if TURNED
    for (int lane = 0; lane < WIDTH; lane++)
        for (int o2 = first; o2 < end; o2++)
            WRITE(made[o2 - first][lane], o0, o1, o2, outer, c + lane);
#endif
}
