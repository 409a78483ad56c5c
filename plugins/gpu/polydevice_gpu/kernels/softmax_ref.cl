// softmax_ref: one work-item normalises one row along the axis.
// NDRange: {rows}; local size free.
// Layouts: any.   Types: half, float, double; sums in the compute type.
// Needs: ROWS, COUNT (length of a row), LOGARITHM.
// Reads each input three times; meant for correctness and for devices of few, wide cores.
KERNEL(softmax_ref) {
    const int row = get_global_id(0);
    if (row >= ROWS) return;
    IN0_C highest = -INFINITY, sum = 0;
    for (int i = 0; i < COUNT; i++) highest = fmax(highest, IN0_LOAD(IN0_AT(row, i)));
    for (int i = 0; i < COUNT; i++) sum += exp(IN0_LOAD(IN0_AT(row, i)) - highest);
    const IN0_C scale = LOGARITHM ? log(sum) : 1 / sum;
    for (int i = 0; i < COUNT; i++) {
        const IN0_C v = IN0_LOAD(IN0_AT(row, i)) - highest;
        WRITE((LOGARITHM ? v - scale : exp(v) * scale), row, i);
    }
}
