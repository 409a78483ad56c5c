// normalization_ref: one work-item normalises one row by its mean and deviation, or by its norm.
// NDRange: {rows}; local size free.
// Layouts: any.   Types: half, float, double; sums in the compute type.
// Needs: ROWS, COUNT, CENTRE (subtract the mean), SCALE (divide), DIVISOR of the sum of squares,
// ROOT(s), EPSILON.
KERNEL(normalization_ref) {
    const int row = get_global_id(0);
    if (row >= ROWS) return;
    IN0_C mean = 0, squares = 0;
    if (CENTRE) {
        for (int i = 0; i < COUNT; i++) mean += IN0_LOAD(IN0_AT(row, i));
        mean /= COUNT;
    }
    for (int i = 0; i < COUNT; i++) {
        const IN0_C v = IN0_LOAD(IN0_AT(row, i)) - mean;
        squares += v * v;
    }
    const IN0_C divisor = SCALE ? ROOT(squares / DIVISOR) : 1;
    for (int i = 0; i < COUNT; i++)
        WRITE((IN0_LOAD(IN0_AT(row, i)) - mean) / divisor, row, i);
}
