// normalization_group: one work-group of LANES work-items normalises one row.
// NDRange: {LANES, rows}; local size {LANES, 1}.
// Layouts: any.   Types: half, float, double; sums in the compute type.
// Needs: as normalization_ref, and LANES (a power of two).
// Neighbouring lanes read neighbouring elements; the later readings come from cache.
#define SUM_OF_LANES                                                  \
    for (int half_way = LANES / 2; half_way > 0; half_way /= 2) {     \
        barrier(CLK_LOCAL_MEM_FENCE);                                 \
        if (lane < half_way) part[lane] += part[lane + half_way];     \
    }                                                                 \
    barrier(CLK_LOCAL_MEM_FENCE);

KERNEL(normalization_group) {
    __local IN0_C part[LANES];
    const int lane = get_local_id(0), row = get_global_id(1);
    IN0_C mean = 0, own = 0;
    if (CENTRE) {
        for (int i = lane; i < COUNT; i += LANES) own += IN0_LOAD(IN0_AT(row, i));
        part[lane] = own;
        SUM_OF_LANES
        mean = part[0] / COUNT;
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    own = 0;
    for (int i = lane; i < COUNT; i += LANES) {
        const IN0_C v = IN0_LOAD(IN0_AT(row, i)) - mean;
        own += v * v;
    }
    part[lane] = own;
    SUM_OF_LANES
    const IN0_C divisor = SCALE ? ROOT(part[0] / DIVISOR) : 1;
    for (int i = lane; i < COUNT; i += LANES)
        WRITE((IN0_LOAD(IN0_AT(row, i)) - mean) / divisor, row, i);
}
