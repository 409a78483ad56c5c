// inverse_ref: one work-item inverts one matrix.
// NDRange: {COUNT}; local size free.
// Layouts: any.   Types: half, float, double; elimination in the compute type.
// Needs: SIZE, COUNT; WORK for two matrices each: the given one beside the identity.
#define A(i, j) own[(i) * 2 * SIZE + (j)]

KERNEL(inverse_ref) {
    const int b = get_global_id(0);
    if (b >= COUNT) return;
    __global IN0_C* own = work + (size_t)b * SIZE * SIZE * 2;
    for (int i = 0; i < SIZE; i++) {
        for (int j = 0; j < SIZE; j++) {
            A(i, j) = IN0_LOAD(IN0_AT(b, i, j));
            A(i, SIZE + j) = i == j;
        }
    }
    for (int k = 0; k < SIZE; k++) {
        int pivot = k;
        for (int i = k + 1; i < SIZE; i++)
            if (fabs(A(i, k)) > fabs(A(pivot, k))) pivot = i;
        const IN0_C scale = 1 / A(pivot, k);
        for (int j = 0; j < 2 * SIZE; j++) {
            const IN0_C v = A(pivot, j);
            A(pivot, j) = A(k, j);
            A(k, j) = v * scale;
        }
        for (int i = 0; i < SIZE; i++) {
            if (i == k) continue;
            const IN0_C factor = A(i, k);
            for (int j = k; j < 2 * SIZE; j++) A(i, j) -= factor * A(k, j);
        }
    }
    for (int i = 0; i < SIZE; i++)
        for (int j = 0; j < SIZE; j++) WRITE(A(i, SIZE + j), b, i, j);
}
