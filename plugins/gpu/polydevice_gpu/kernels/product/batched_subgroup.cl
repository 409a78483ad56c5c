// batched_subgroup: a sub-group computes TM rows by SG * TN columns of one product of a batch. A
// lane holds one term (K) of each row, which all lanes get in turn, and every SG-th column.
// NDRange: {batches * row tiles * column tiles * SG * SUBS}, all along x; local size {SG * SUBS}.
// Layouts: any; best with terms of the first factor and columns of the second side by side.
// Types: half, float; sums in float.
// Needs: as lanes.cl, COUNT (K), M, N, TILES_M, TILES_N, BM (SUBS * TM), BN (SG * TN), TM, TN;
// IN1_BLOCK(i): a vector of TN elements SG apart for every lane, not defined where they are read
// one by one.
#include "include/lanes.cl"
#define PUT(v, m, n) WRITE(v, b, m, n)
// Lanes beyond the last column read that one again.
#define ADD_TERM(k)                                                                               \
    {                                                                                             \
        float column[TN];                                                                         \
        READ_COLUMNS(start + (k))                                                                 \
        ADD_PRODUCTS(row, column, k)                                                              \
    }
#define READ_EACH(k)                                                                              \
    _Pragma("unroll") for (int j = 0; j < TN; j++)                                                \
        column[j] = IN1_LOAD(IN1_AT(b, k, min(first_n + j * SG + lane, N - 1)));
#ifdef IN1_BLOCK
#define READ_COLUMNS(k)                                                                           \
    if (first_n + BN <= N) {                                                                      \
        PUT_BLOCK(IN1_BLOCK(IN1_AT(b, k, first_n)), column);                                      \
    } else {                                                                                      \
        READ_EACH(k)                                                                              \
    }
#else
#define READ_COLUMNS(k) READ_EACH(k)
#endif

KERNEL(batched_subgroup) {
    DECLARE_LANES(TM)
    const int group = get_group_id(0), b = group / TILES_N / TILES_M;
    const int first_n = group % TILES_N * BN;
    const int first_m = group / TILES_N % TILES_M * BM + sub * TM;
#if END_ALONE
    if (first_m >= M) return;
#endif
    DECLARE_SUMS

    for (int start = 0; start < COUNT; start += SG) {
        LANE_T row[TM];
        #pragma unroll
        for (int i = 0; i < TM; i++) {
            row[i] = 0;
            if (first_m + i < M && start + lane < COUNT)
                row[i] = IN0_LOAD(IN0_AT(b, first_m + i, start + lane));
        }
        OFFER(row, TM)
        if (start + SG <= COUNT) {
            #pragma unroll
            for (int k = 0; k < SG; k++) ADD_TERM(k)
        } else {
            for (int k = 0; k < COUNT - start; k++) ADD_TERM(k)
        }
    }
    STORE_SUMS(M, N)
}
