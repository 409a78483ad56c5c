// softmax_group: one work-group of LANES work-items normalises one row along the axis.
// NDRange: {LANES, rows}; local size {LANES, 1}.
// Layouts: any.   Types: half, float, double; sums in the compute type.
// Needs: ROWS, COUNT (length of a row), LOGARITHM, LANES (a power of two).
// Neighbouring lanes read neighbouring elements; the second and third reading come from cache.
#define REDUCE(expression)                                            \
    for (int half_way = LANES / 2; half_way > 0; half_way /= 2) {     \
        barrier(CLK_LOCAL_MEM_FENCE);                                 \
        if (lane < half_way) {                                        \
            const IN0_C a = part[lane], v = part[lane + half_way];    \
            part[lane] = expression;                                  \
        }                                                             \
    }                                                                 \
    barrier(CLK_LOCAL_MEM_FENCE);

KERNEL(softmax_group) {
    __local IN0_C part[LANES];
    const int lane = get_local_id(0), row = get_global_id(1);
    IN0_C own = -INFINITY;
    for (int i = lane; i < COUNT; i += LANES) own = fmax(own, IN0_LOAD(IN0_AT(row, i)));
    part[lane] = own;
    REDUCE(fmax(a, v))
    const IN0_C highest = part[0];
    barrier(CLK_LOCAL_MEM_FENCE);
    own = 0;
    for (int i = lane; i < COUNT; i += LANES) own += exp(IN0_LOAD(IN0_AT(row, i)) - highest);
    part[lane] = own;
    REDUCE(a + v)
    const IN0_C scale = LOGARITHM ? log(part[0]) : 1 / part[0];
    for (int i = lane; i < COUNT; i += LANES) {
        const IN0_C v = IN0_LOAD(IN0_AT(row, i)) - highest;
        WRITE((LOGARITHM ? v - scale : exp(v) * scale), row, i);
    }
}
