// Positions of a window along an axis: which of them lie on data of a size, begun at `start`.
// Needs: KERNEL_*, DILATION_*; for COUNTED, by how many an average divides, IN_*, PAD_END_*,
// EXCLUDE_PAD and COUNT_WHOLE. Loops over large windows take these alone, as an average over all of
// a picture may have a window of any size; of small ones all, which compilers unroll.
#define FIRST(axis, start) max((DILATION_##axis - 1 - (start)) / DILATION_##axis, 0)
#define END(axis, start, size) \
    clamp(((size) - (start) + DILATION_##axis - 1) / DILATION_##axis, 0, KERNEL_##axis)
#define INSIDE(axis, start, size) max(END(axis, start, size) - FIRST(axis, start), 0)
// Positions beyond the padded input (rounding up) never count, unless all do.
#define COUNTED(z0, y0, x0)                                                                       \
    (EXCLUDE_PAD   ? INSIDE(Z, z0, IN_Z) * INSIDE(Y, y0, IN_Y) * INSIDE(X, x0, IN_X)              \
     : COUNT_WHOLE ? KERNEL_Z * KERNEL_Y * KERNEL_X                                               \
                   : END(Z, z0, IN_Z + PAD_END_Z) * END(Y, y0, IN_Y + PAD_END_Y) *                \
                         END(X, x0, IN_X + PAD_END_X))
#if KERNEL_Z * KERNEL_Y * KERNEL_X > 64
#define FOR_WINDOW(k, axis, start, size) \
    for (int k = FIRST(axis, start), k##_end = END(axis, start, size); k < k##_end; k++)
#else
#define FOR_WINDOW(k, axis, start, size) for (int k = 0; k < KERNEL_##axis; k++)
#endif
