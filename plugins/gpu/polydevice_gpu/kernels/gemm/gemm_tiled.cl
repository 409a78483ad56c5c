// gemm_tiled: a work-group computes BM pixels (rows) by BN channels (columns) via local memory.
// NDRange: {column tiles * THREADS, row tiles, SPLIT}; local size {THREADS, 1, 1}.
// Layouts: any; best with channels side by side.   Types: half, float; sums in float, of BK
// terms in half with HALF.
// Needs: as rows.cl, COLUMNS, STEPS (of BK terms, per part), BM, BN, TM, TN, SPLIT, TERMS_AT_ONCE
// (4: terms of a pixel are read as vectors), COLUMNS_PADDED; FILTER as [term, column].
#include "include/parts.cl"
#include "include/rows.cl"
#include "include/shares.cl"
#define BK 16
#define PITCH_A (BM + 4)
#define READS_A (BM * BK / TERMS_AT_ONCE / THREADS)
#define READS_B (BK * BN / 4 / THREADS)
#define ROWS_APART (THREADS * TERMS_AT_ONCE / BK)
#define TERMS_APART (THREADS * 4 / BN)
// Factors stay what they are stored as where products are computed in half.
#if HALF
#pragma OPENCL EXTENSION cl_khr_fp16 : enable
#define TERM half
#define TERM4 half4
#define NARROW4(v) convert_half4(v)
#else
#define TERM float
#define TERM4 float4
#define NARROW4(v) v
#endif
#if TERMS_AT_ONCE == 4
#define PIECE TERM4
#define READ(i) NARROW4(IN0_LOAD4(i))
#define ZERO (TERM4)(0)
#else
#define PIECE TERM
#define READ(i) IN0_LOAD(i)
#define ZERO 0
#endif

// Read one step of both factors into registers, and move on to the next.
#define FETCH                                                                                     \
    {                                                                                             \
        _Pragma("unroll") for (int i = 0; i < READS_A; i++) {                                     \
            FIND_INPUT(i)                                                                         \
            next_a[i] = ZERO;                                                                     \
            if (inside) next_a[i] = READ(INPUT_AT(i));                                            \
        }                                                                                         \
        _Pragma("unroll") for (int i = 0; i < READS_B; i++)                                       \
            next_b[i] = NARROW4(FILTER_LOAD4(filter_at + i * TERMS_APART * COLUMNS_PADDED));      \
        filter_at += BK * COLUMNS_PADDED;                                                         \
        SKIP_TERMS(BK)                                                                            \
    }
#if TERMS_AT_ONCE == 4
#define PUT_A(s, i)                                                                               \
    tile_a[s][a_term + 0][a_row + (i) * ROWS_APART] = next_a[i].s0;                               \
    tile_a[s][a_term + 1][a_row + (i) * ROWS_APART] = next_a[i].s1;                               \
    tile_a[s][a_term + 2][a_row + (i) * ROWS_APART] = next_a[i].s2;                               \
    tile_a[s][a_term + 3][a_row + (i) * ROWS_APART] = next_a[i].s3;
#else
#define PUT_A(s, i) tile_a[s][a_term][a_row + (i) * ROWS_APART] = next_a[i];
#endif
#define PUT(s)                                                                                    \
    {                                                                                             \
        _Pragma("unroll") for (int i = 0; i < READS_A; i++) { PUT_A(s, i) }                       \
        _Pragma("unroll") for (int i = 0; i < READS_B; i++)                                       \
            *(__local TERM4*)&tile_b[s][b_term + i * TERMS_APART][b_column] = next_b[i];          \
    }

KERNEL(gemm_tiled) {
    LOCAL_ARRAY(TERM, tile_a, 2, [BK][PITCH_A], 16);
    LOCAL_ARRAY(TERM, tile_b, 2, [BK][BN], 16);
    const int thread = get_local_id(0);
    const int share_n = thread % (BN / TN) * 4, share_m = thread / (BN / TN) * 4;
    const int first_m = get_group_id(1) * BM, first_n = get_group_id(0) * BN;
    const int part = get_group_id(2);
    const int a_term = thread % (BK / TERMS_AT_ONCE) * TERMS_AT_ONCE;
    const int a_row = thread / (BK / TERMS_AT_ONCE);
    const int b_column = thread % (BN / 4) * 4, b_term = thread / (BN / 4);

    DECLARE_ROWS(READS_A, first_m + a_row, ROWS_APART)
    const int start = part * STEPS * BK + a_term;
    DECLARE_TERM(start)
    int filter_at = (part * STEPS * BK + b_term) * COLUMNS_PADDED + first_n + b_column;

    PIECE next_a[READS_A];
    TERM4 next_b[READS_B];
    DECLARE_SUMS

    FETCH
    PUT(0)
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int step = 0; step < STEPS; step++) {
        const int s = step & 1;
        if (step + 1 < STEPS) FETCH
#if HALF
        half4 strip[TM][GROUPS_N];
        #pragma unroll
        for (int i = 0; i < TM; i++)
            #pragma unroll
            for (int j = 0; j < GROUPS_N; j++) strip[i][j] = (half4)(0);
#endif
        #pragma unroll
        for (int k = 0; k < BK; k++) {
            TERM a[TM];
            TERM4 b[GROUPS_N];
            #pragma unroll
            for (int g = 0; g < GROUPS_M; g++)
                vstore4(*(__local TERM4*)&tile_a[s][k][g * (BM / GROUPS_M) + share_m], g, a);
            #pragma unroll
            for (int g = 0; g < GROUPS_N; g++)
                b[g] = *(__local TERM4*)&tile_b[s][k][g * (BN / GROUPS_N) + share_n];
#if HALF
            #pragma unroll
            for (int i = 0; i < TM; i++)
                #pragma unroll
                for (int j = 0; j < GROUPS_N; j++)
                    strip[i][j] = fma((half4)(a[i]), b[j], strip[i][j]);
#else
            ADD_PRODUCTS(a[i], b)
#endif
        }
#if HALF
        #pragma unroll
        for (int i = 0; i < TM; i++)
            #pragma unroll
            for (int j = 0; j < GROUPS_N; j++) sum[i][j] += convert_float4(strip[i][j]);
#endif
        if (step + 1 < STEPS) PUT(s ^ 1)
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    STORE_SUMS(ROWS, COLUMNS)
}
