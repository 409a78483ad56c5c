// measured_matmul_ref: one work-item measures one slot of a row: its mean and the squares about it.
// NDRange: {slots, rows}; local size free.
// Layouts: any.   Types: floating point; moments in float.
// Needs: COLUMNS (of a row), WIDTH (columns of a slot, of which the last may have fewer).
KERNEL(measured_matmul_ref) {
    const int slot = get_global_id(0), row = get_global_id(1);
    const int first = slot * WIDTH, end = min(first + WIDTH, COLUMNS);
    float mean = 0, squares = 0;
    for (int n = first; n < end; n++) mean += IN0_LOAD(IN0_AT(row, n));
    mean /= end - first;
    for (int n = first; n < end; n++) {
        const float off = IN0_LOAD(IN0_AT(row, n)) - mean;
        squares += off * off;
    }
    OUT1_STORE(OUT1_AT(row, slot, 0), mean);
    OUT1_STORE(OUT1_AT(row, slot, 1), squares);
}
