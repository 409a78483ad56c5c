// batched_tiled: a work-group computes BM rows by BN columns of one product of a batch.
// NDRange: {batches * row tiles * column tiles * THREADS}, all along x, which has no limit of
// 65,535 work-groups as y and z have on some devices; local size {THREADS, 1, 1}.
// Layouts: any; best with rows or columns side by side.   Types: half, float; sums in float.
// Needs: COUNT (K), M, N, TILES_M, TILES_N; BM, BN (the tile), TM, TN (as shares.cl);
// TERMS_FIRST_A, TERMS_FIRST_B: neighbouring work-items read neighbouring terms (K) of a
// factor, not neighbouring rows or columns.
// Limits: BM * BK and BN * BK are multiples of THREADS.
#include "include/shares.cl"
#define BK 16
// Four more than a tile: work-items that write neighbouring terms would all meet in one bank.
#define PITCH_A (BM + 4)
#define PITCH_B (BN + 4)
#define PUT4(v, m, n) WRITE4(v, b, m, n)
#define PUT4_FIRST(count, v, m, n) WRITE4_FIRST(count, v, b, m, n)
// Fill a strip of BK terms by `across` rows or columns; zeros beyond the last one and all terms.
#define FILL(tile, across, terms_first, first, size, element)                                     \
    _Pragma("unroll") for (int i = 0; i < across * BK / THREADS; i++) {                           \
        const int place = thread + i * THREADS;                                                   \
        const int k = terms_first ? place % BK : place / across;                                  \
        const int beside = terms_first ? place / BK : place % across, at = first + beside;        \
        float x = 0.0f;                                                                           \
        if (at < size && start + k < COUNT) x = element;                                          \
        tile[k][beside] = x;                                                                      \
    }

KERNEL(batched_tiled) {
    LOCAL_ARRAY(float, tile_a, BK, [PITCH_A], 16);
    LOCAL_ARRAY(float, tile_b, BK, [PITCH_B], 16);
    const int thread = get_local_id(0), group = get_group_id(0);
    const int share_n = thread % (BN / TN) * 4, share_m = thread / (BN / TN) * 4;
    const int first_n = group % TILES_N * BN, first_m = group / TILES_N % TILES_M * BM;
    const int b = group / TILES_N / TILES_M;

    DECLARE_SUMS

    for (int start = 0; start < COUNT; start += BK) {
        FILL(tile_a, BM, TERMS_FIRST_A, first_m, M, IN0_LOAD(IN0_AT(b, at, start + k)))
        FILL(tile_b, BN, TERMS_FIRST_B, first_n, N, IN1_LOAD(IN1_AT(b, start + k, at)))
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
            ADD_PRODUCTS(row[i], column)
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    STORE_SUMS(M, N)
}
