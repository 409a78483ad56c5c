// det_ref: one work-item computes the determinant of one matrix.
// NDRange: {COUNT}; local size free.
// Layouts: any.   Types: half, float, double; elimination in the compute type.
// Needs: SIZE, COUNT; WORK for COUNT matrices.
#define A(i, j) own[(i) * SIZE + (j)]

KERNEL(det_ref) {
    const int b = get_global_id(0);
    if (b >= COUNT) return;
    __global IN0_C* own = work + (size_t)b * SIZE * SIZE;
    for (int i = 0; i < SIZE; i++)
        for (int j = 0; j < SIZE; j++) A(i, j) = IN0_LOAD(IN0_AT(b, i, j));
    IN0_C det = 1;
    for (int k = 0; k < SIZE; k++) {
        int pivot = k;
        for (int i = k + 1; i < SIZE; i++)
            if (fabs(A(i, k)) > fabs(A(pivot, k))) pivot = i;
        const IN0_C top = A(pivot, k);
        det *= pivot == k ? top : -top;
        if (top == 0) break;
        for (int j = k; j < SIZE; j++) {
            const IN0_C v = A(pivot, j);
            A(pivot, j) = A(k, j);
            A(k, j) = v;
        }
        for (int i = k + 1; i < SIZE; i++) {
            const IN0_C factor = A(i, k) / top;
            for (int j = k; j < SIZE; j++) A(i, j) -= factor * A(k, j);
        }
    }
    WRITE(det, b);
}
