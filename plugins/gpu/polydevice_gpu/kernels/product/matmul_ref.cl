// matmul_ref: one work-item computes one element of a batched matrix product.
// NDRange: {N, M, batches}; local size free.
// Layouts: any.   Types: any; sums in SUM.
// Needs: COUNT (K), SUM, ROUNDED(x), which is x, or x rounded.
// Reads a row and a column for every element; meant for correctness, not speed.
KERNEL(matmul_ref) {
    const int n = get_global_id(0), m = get_global_id(1), b = get_global_id(2);
    SUM sum = 0;
    for (int k = 0; k < COUNT; k++)
        sum += ROUNDED(IN0_LOAD(IN0_AT(b, m, k))) * IN1_LOAD(IN1_AT(b, k, n));
    WRITE(sum, b, m, n);
}
