// batched_tiled: a work-group computes BM rows by BN columns of one product of a batch.
// NDRange: {batches * row tiles * column tiles * THREADS}, all along x, which has no limit of
// 65,535 work-groups as y and z have on some devices; local size {THREADS, 1, 1}.
// Layouts: any; best with rows or columns side by side.   Types: half, float; sums in float.
// Needs: COUNT (K), M, N, TILES_M, TILES_N; BM, BN (the tile), TM, TN (a work-item's share, multiples
// of 4); TERMS_FIRST_A, TERMS_FIRST_B: neighbouring work-items read neighbouring terms (K) of a
// factor, not neighbouring rows or columns.
// Limits: BM * BK and BN * BK are multiples of THREADS.
#define BK 16
#define THREADS ((BM / TM) * (BN / TN))
#define GROUPS_M (TM / 4)
#define GROUPS_N (TN / 4)
// Four more than a tile: work-items that write neighbouring terms would all meet in one bank.
#define PITCH_A (BM + 4)
#define PITCH_B (BN + 4)

KERNEL(batched_tiled) {
    __local float tile_a[BK][PITCH_A] __attribute__((aligned(16)));
    __local float tile_b[BK][PITCH_B] __attribute__((aligned(16)));
    const int thread = get_local_id(0), group = get_group_id(0);
    const int share_n = thread % (BN / TN) * 4, share_m = thread / (BN / TN) * 4;
    const int first_n = group % TILES_N * BN, first_m = group / TILES_N % TILES_M * BM;
    const int b = group / TILES_N / TILES_M;

    float4 sum[TM][GROUPS_N];
    #pragma unroll
    for (int i = 0; i < TM; i++)
        #pragma unroll
        for (int j = 0; j < GROUPS_N; j++) sum[i][j] = (float4)(0.0f);

    for (int start = 0; start < COUNT; start += BK) {
        #pragma unroll
        for (int i = 0; i < BM * BK / THREADS; i++) {
            const int place = thread + i * THREADS;
            const int k = TERMS_FIRST_A ? place % BK : place / BM;
            const int m = TERMS_FIRST_A ? place / BK : place % BM;
            float x = 0.0f;
            if (first_m + m < M && start + k < COUNT)
                x = IN0_LOAD(IN0_AT(b, first_m + m, start + k));
            tile_a[k][m] = x;
        }
        #pragma unroll
        for (int i = 0; i < BN * BK / THREADS; i++) {
            const int place = thread + i * THREADS;
            const int k = TERMS_FIRST_B ? place % BK : place / BN;
            const int n = TERMS_FIRST_B ? place / BK : place % BN;
            float x = 0.0f;
            if (first_n + n < N && start + k < COUNT)
                x = IN1_LOAD(IN1_AT(b, start + k, first_n + n));
            tile_b[k][n] = x;
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        // Not all sixteen, which compile longer; what is faster on a GPU is not measured yet.
        #pragma unroll 4
        for (int k = 0; k < BK; k++) {
            float row[TM];
            float4 column[GROUPS_N];
            #pragma unroll
            for (int g = 0; g < GROUPS_M; g++)
                vstore4(*(__local float4*)&tile_a[k][g * (BM / GROUPS_M) + share_m], g, row);
            #pragma unroll
            for (int g = 0; g < GROUPS_N; g++)
                column[g] = *(__local float4*)&tile_b[k][g * (BN / GROUPS_N) + share_n];
            #pragma unroll
            for (int i = 0; i < TM; i++)
                #pragma unroll
                for (int j = 0; j < GROUPS_N; j++)
                    sum[i][j] = fma((float4)(row[i]), column[j], sum[i][j]);
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    #pragma unroll
    for (int i = 0; i < TM; i++) {
        const int m = first_m + i / 4 * (BM / GROUPS_M) + share_m + i % 4;
        if (m >= M) continue;
        #pragma unroll
        for (int j = 0; j < GROUPS_N; j++) {
            const int n = first_n + j * (BN / GROUPS_N) + share_n;
            if (n + 4 <= N)
                WRITE4(sum[i][j], b, m, n);
            else if (n < N)
                WRITE4_FIRST(N - n, sum[i][j], b, m, n);
        }
    }
}
