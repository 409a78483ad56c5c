// elementwise_ref: one work-item computes WIDTH neighbours of the result along its innermost axis.
// NDRange: {ceil(SIZE / WIDTH), middle axes, outer axes}; local size free.
// Layouts: any, each tensor with its own pitches.   Types: any; floats and
// what is converted from and to them for WIDTH > 1.
// Needs: SIZE (elements along the innermost axis), WIDTH (1, 4, 8, 16), compute and compute<WIDTH>.
// ROWS_SHARE (a group has several of the MIDDLE rows along the second coordinate).
// The last work-item of a row computes what is left one by one.
#define JOIN2(a, b) a##b
#define JOIN(a, b) JOIN2(a, b)

KERNEL(elementwise_ref) {
    const int c0 = get_global_id(2), c1 = get_global_id(1), start = get_global_id(0) * WIDTH;
#if ROWS_SHARE
    if (c1 >= MIDDLE) return;
#endif
#if WIDTH > 1
    if (start + WIDTH <= SIZE) {
        JOIN(OUT0_STORE, WIDTH)(OUT0_AT(c0, c1, start), JOIN(compute, WIDTH)(c0, c1, start, ARGUMENTS));
        return;
    }
#endif
#if WIDTH > 1 && !defined(__NV_CL_C_VERSION)
    #pragma clang loop vectorize(disable) unroll(disable)  // PoCL: tanh in 116 instead of 203 ms
#endif
    for (int c2 = start; c2 < min(start + WIDTH, SIZE); c2++)
        OUT0_STORE(OUT0_AT(c0, c1, c2), compute(c0, c1, c2, ARGUMENTS));
}
