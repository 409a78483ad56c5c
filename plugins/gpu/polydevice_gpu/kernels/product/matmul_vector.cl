// matmul_vector: one work-item computes ROWS rows of LANES columns of a batched matrix product.
// NDRange: {BLOCKS, TILES, batches}, first two exchanged unless BLOCKS_FIRST.
// Layouts: second factor with its columns side by side.   Types: half, float; sums in float.
// Needs: COUNT (K), M, N, BLOCKS, TILES, LANES, ROWS, WHOLE_BLOCKS (LANES divides N).
// Rows beyond M repeat the last one and are not stored.
#define JOIN2(a, b) a##b
#define JOIN(a, b) JOIN2(a, b)
#define JOIN3(a, b, c) JOIN(JOIN(a, b), c)
#define VECTOR JOIN(float, LANES)

KERNEL(matmul_vector) {
    const int block = get_global_id(BLOCKS_FIRST ? 0 : 1), tile = get_global_id(BLOCKS_FIRST ? 1 : 0);
    const int b = get_global_id(2), n = block * LANES, m = tile * ROWS;
    if (block >= BLOCKS || tile >= TILES) return;
    VECTOR sum[ROWS];
    for (int r = 0; r < ROWS; r++) sum[r] = (VECTOR)(0);
    if (WHOLE_BLOCKS || n + LANES <= N) {
        for (int k = 0; k < COUNT; k++) {
            const VECTOR v = JOIN(IN1_LOAD, LANES)(IN1_AT(b, k, n));
            for (int r = 0; r < ROWS; r++) sum[r] += IN0_LOAD(IN0_AT(b, min(m + r, M - 1), k)) * v;
        }
        for (int r = 0; r < ROWS; r++)
            if (m + r < M) JOIN(WRITE, LANES)(sum[r], b, m + r, n);
    } else {
        for (int k = 0; k < COUNT; k++) {
            float part[LANES];
            for (int lane = 0; lane < LANES; lane++)
                part[lane] = IN1_LOAD(IN1_AT(b, k, min(n + lane, N - 1)));
            const VECTOR v = JOIN(vload, LANES)(0, part);
            for (int r = 0; r < ROWS; r++) sum[r] += IN0_LOAD(IN0_AT(b, min(m + r, M - 1), k)) * v;
        }
        for (int r = 0; r < ROWS; r++)
            if (m + r < M) JOIN3(WRITE, LANES, _FIRST)(N - n, sum[r], b, m + r, n);
    }
}
