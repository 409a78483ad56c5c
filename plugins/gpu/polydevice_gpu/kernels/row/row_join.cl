// row_join: a work-group joins all parts of a row, or of TOGETHER neighbouring rows, which
// kernels of row.cl have gathered, and stores the result, or its part of it.
// NDRange: see include/row.cl; one part for a result that is one element of a row.
// Layouts: any.   Types: any; computed in SUM_T.
// Needs: see include/row.cl; START, JOIN_FIRST(a, v), SWEEPS and CENTRE(a, n) as row.cl, and for
// a second sweep JOINED(b, a, own, n): what a part of n terms adds whose sweeps gave a and b,
// and its centre is own; PARTS and buffers FIRSTS and SECONDS.
// Parts are joined in the same order every time; groups that store parts of a row all join the
// whole.
#include "include/row.cl"

KERNEL(row_join) {
    DECLARE_ROW
    SUM_T first = START, second = 0;
    for (int p = lane; p < PARTS; p += LANES_OF_ROW) {
        const SUM_T v = firsts[p * ROWS + row];
        first = JOIN_FIRST(first, v);
    }
    OVER_LANES(first, JOIN_FIRST)
    const SUM_T centre = CENTRE(first, COUNT);
#if SWEEPS > 1
    for (int p = lane; p < PARTS; p += LANES_OF_ROW) {
        const int terms = min(LENGTH, COUNT - p * LENGTH);
        const SUM_T a = firsts[p * ROWS + row], own = CENTRE(a, terms);
        second += JOINED(seconds[p * ROWS + row], a, own, terms);
    }
    OVER_LANES(second, PLUS)
#endif
    STORE_ROW(first, second)
}
