// normalized_matmul_ref: one work-item computes one element of a product of rows that it normalises.
// NDRange: {N, M, batches}; local size free.
// Layouts: any.   Types: floating point; sums in SUM.
// Needs: COUNT (K), EPSILON, SUM; IN3, what is added to a column.
// Reads a row three times for every element; meant for correctness, not speed.
KERNEL(normalized_matmul_ref) {
    const int n = get_global_id(0), m = get_global_id(1), b = get_global_id(2);
    SUM mean = 0, variance = 0, sum = 0;
    for (int k = 0; k < COUNT; k++) mean += IN0_LOAD(IN0_AT(b, m, k));
    mean /= COUNT;
    for (int k = 0; k < COUNT; k++) {
        const SUM centred = IN0_LOAD(IN0_AT(b, m, k)) - mean;
        variance += centred * centred;
        sum += centred * IN1_LOAD(IN1_AT(b, k, n));
    }
    sum = sum / sqrt(variance / COUNT + EPSILON) + IN3_LOAD(IN3_AT(n));
    WRITE(sum, b, m, n);
}
