// gemm_subgroup: a sub-group computes TM pixels (rows) by SG * TN channels (columns). A lane holds
// one term of each pixel, which all lanes get in turn, and every SG-th channel.
// NDRange: {column tiles * SG * SUBS, row tiles, SPLIT}; local size {SG * SUBS, 1, 1}.
// Layouts: any; best with channels side by side.   Types: half, float; sums in float, of 16
// terms in half with HALF.
// Needs: as rows.cl and lanes.cl, COLUMNS, STEPS (of SG terms, per part), BM (SUBS * TM), BN
// (SG * TN), TM, TN, SPLIT, COLUMNS_PADDED; FILTER as [term, column]; FILTER_BLOCK(i): a vector of
// TN elements SG apart for every lane, not defined where they are read one by one.
#include "include/lanes.cl"
#include "include/rows.cl"
#if SPLIT > 1
#define PUT(v, m, n) parts[((size_t)part * ROWS + m) * COLUMNS + n] = v
#else
#define PUT(v, m, n) WRITE(v, m, n)
#endif

KERNEL(gemm_subgroup) {
    DECLARE_LANES(TM)
    const int first_m = get_group_id(1) * BM + sub * TM, first_n = get_group_id(0) * BN;
    const int part = get_group_id(2);
#if END_ALONE
    if (first_m >= ROWS) return;
#endif
    DECLARE_ROWS(TM, first_m, 1)
    const int start = part * STEPS * SG;
    DECLARE_TERM(start + lane)
    int filter_at = start * COLUMNS_PADDED + first_n;

    DECLARE_SUMS

    for (int step = 0; step < STEPS; step++) {
        LANE_T a[TM];
        #pragma unroll
        for (int i = 0; i < TM; i++) {
            FIND_INPUT(i)
            a[i] = 0;
            if (inside) a[i] = IN0_LOAD(INPUT_AT(i));
        }
        SKIP_TERMS(SG)
        OFFER(a, TM)
        #pragma unroll
        for (int k = 0; k < SG; k++) {
            LANE_T b[TN];
#ifdef FILTER_BLOCK
            PUT_BLOCK(FILTER_BLOCK(filter_at), b);
#else
            #pragma unroll
            for (int j = 0; j < TN; j++) b[j] = FILTER_LOAD(filter_at + j * SG + lane);
#endif
            filter_at += COLUMNS_PADDED;
            ADD_PRODUCTS(a, b, k)
            END_TERM(k)
        }
    }
    STORE_SUMS(ROWS, COLUMNS)
}
