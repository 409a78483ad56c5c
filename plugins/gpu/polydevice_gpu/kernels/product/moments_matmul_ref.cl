// moments_matmul_ref: one work-item computes one element of a product of rows that it normalises by
// what was measured of their slots.
// NDRange: {N, M, batches}; local size free.
// Layouts: any.   Types: floating point; sums in SUM.
// Needs: COUNT (K), M, EPSILON, SUM, WIDTH (terms of a slot, of which the last may have fewer); IN3, what
// is added to a column; IN4, mean and squares about it of each row and slot.
KERNEL(moments_matmul_ref) {
    const int n = get_global_id(0), m = get_global_id(1), b = get_global_id(2), row = b * M + m;
    SUM mean = 0, squares = 0, sum = 0;
    for (int first = 0; first < COUNT; first += WIDTH)
        mean += min(WIDTH, COUNT - first) * IN4_LOAD(IN4_AT(row, first / WIDTH, 0));
    mean /= COUNT;
    for (int first = 0; first < COUNT; first += WIDTH) {
        const SUM off = IN4_LOAD(IN4_AT(row, first / WIDTH, 0)) - mean;
        squares += IN4_LOAD(IN4_AT(row, first / WIDTH, 1)) + min(WIDTH, COUNT - first) * off * off;
    }
    for (int k = 0; k < COUNT; k++)
        sum += (IN0_LOAD(IN0_AT(b, m, k)) - mean) * IN1_LOAD(IN1_AT(b, k, n));
    sum = sum / sqrt(squares / COUNT + EPSILON) + IN3_LOAD(IN3_AT(n));
    WRITE(sum, b, m, n);
}
