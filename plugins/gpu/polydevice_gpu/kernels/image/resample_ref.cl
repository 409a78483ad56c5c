// resample_ref: one work-item computes one element as a weighted sum of chosen input elements.
// NDRange: {OUT_2, OUT_1 * OUT_0, REST}, or {REST, OUT_2, OUT_1 * OUT_0} with REST_INSIDE.
// Layouts: any.   Types: any; sums in SUM (float or double), integers rounded and saturated.
// Needs: TAPS_n, INDEX_n(o, t), WEIGHT_n(o, t) of three axes (1, 0 and 1 where there are fewer),
// OUT_n, REST (elements of the other axes), INTEGER, ROUNDED(v), SATURATE.

KERNEL(resample_ref) {
#if REST_INSIDE
    const int rest = get_global_id(0), o2 = get_global_id(1);
    const int o1 = get_global_id(2) % OUT_1, o0 = get_global_id(2) / OUT_1;
#else
    const int o2 = get_global_id(0), rest = get_global_id(2);
    const int o1 = get_global_id(1) % OUT_1, o0 = get_global_id(1) / OUT_1;
#endif
    SUM sum = 0;
    for (int t0 = 0; t0 < TAPS_0; t0++)
        for (int t1 = 0; t1 < TAPS_1; t1++)
            for (int t2 = 0; t2 < TAPS_2; t2++)
                sum += (SUM)(WEIGHT_0(o0, t0) * WEIGHT_1(o1, t1) * WEIGHT_2(o2, t2)) *
                       IN0_LOAD(IN0_AT(INDEX_0(o0, t0), INDEX_1(o1, t1), INDEX_2(o2, t2), rest));
#if INTEGER
    WRITE(SATURATE(ROUNDED(sum)), o0, o1, o2, rest);
#else
    WRITE(sum, o0, o1, o2, rest);
#endif
}
