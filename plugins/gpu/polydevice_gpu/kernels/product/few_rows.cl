// few_rows: a work-group computes BM rows (pixels) of BN columns (channels); the 32 lanes of a column
// take other terms, and what they have is added up in local memory. Weights are read once, those of a
// column by neighbours.
// NDRange: {column tiles * THREADS, row tiles, 1}; local size {THREADS, 1, 1}.
// Layouts: any; best with channels side by side.   Types: half, float; sums in float.
// Needs: as rows.cl, COLUMNS, STEPS (of 128 terms), TERMS (128 * STEPS), BM, BN, TERMS_AT_ONCE (4:
// terms of a pixel are read as vectors); FILTER as [column, term].
#include "include/rows.cl"
#define LANES 32
#define THREADS (LANES * BN)
#define PIECES (4 / TERMS_AT_ONCE)
#if TERMS_AT_ONCE == 4
#define PIECE float4
#define READ(i) IN0_LOAD4(i)
#define WEIGHT(i) FILTER_LOAD4(i)
#define TOTAL(v) ((v.s0 + v.s1) + (v.s2 + v.s3))
#else
#define PIECE float
#define READ(i) IN0_LOAD(i)
#define WEIGHT(i) FILTER_LOAD(i)
#define TOTAL(v) v
#endif

KERNEL(few_rows) {
    LOCAL_ARRAY(float, shares, BM * BN, [LANES + 1], 16);  // so that columns start in other banks
    const int thread = get_local_id(0), lane = thread % LANES;
    const int first_m = get_group_id(1) * BM, first_n = get_group_id(0) * BN;
    const int filter_at = (first_n + thread / LANES) * TERMS;
    DECLARE_ROWS(BM, first_m, 1)

    PIECE sum[BM];
    #pragma unroll
    for (int i = 0; i < BM; i++) sum[i] = (PIECE)(0);
    #pragma unroll 4
    for (int piece = 0; piece < STEPS * PIECES; piece++) {
        const int term = (piece * LANES + lane) * TERMS_AT_ONCE;
        const PIECE weight = WEIGHT(filter_at + term);
        DECLARE_TERM(term)
        #pragma unroll
        for (int i = 0; i < BM; i++) {
            FIND_INPUT(i)
            if (inside) sum[i] += READ(INPUT_AT(i)) * weight;
        }
    }
    #pragma unroll
    for (int i = 0; i < BM; i++) shares[i * BN + thread / LANES][lane] = TOTAL(sum[i]);
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int at = thread; at < BM * BN; at += THREADS) {
        const int m = first_m + at / BN, n = first_n + at % BN;
        float total = 0;
        #pragma unroll
        for (int from = 0; from < LANES; from++) total += shares[at][from];
        if (m < ROWS && n < COLUMNS) WRITE(total, m, n);
    }
}
