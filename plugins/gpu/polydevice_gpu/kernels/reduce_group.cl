// reduce_group: one work-group of LANES work-items reduces one row.
// NDRange: {LANES, rows}; local size {LANES, 1}.
// Layouts: any.   Types: any; computed in the compute type of the input.
// Needs: ROWS, COUNT (terms of a row), START, COMBINE(a, v), FINISH(a), LANES (a power of two).
// Neighbouring lanes read neighbouring terms; joining takes log2(LANES) barriers.
KERNEL(reduce_group) {
    __local IN0_C part[LANES];
    const int lane = get_local_id(0), row = get_global_id(1);
    IN0_C a = START;
    for (int i = lane; i < COUNT; i += LANES) {
        const IN0_C v = IN0_LOAD(IN0_AT(row, i));
        a = COMBINE(a, v);
    }
    part[lane] = a;
    for (int half_way = LANES / 2; half_way > 0; half_way /= 2) {
        barrier(CLK_LOCAL_MEM_FENCE);
        if (lane < half_way) {
            const IN0_C v = part[lane + half_way];
            a = part[lane];
            // Partial sums of absolute values and squares are joined by adding.
            part[lane] = JOIN_PARTS(a, v);
        }
    }
    if (lane == 0) {
        a = part[0];
        WRITE(FINISH(a), row);
    }
}
