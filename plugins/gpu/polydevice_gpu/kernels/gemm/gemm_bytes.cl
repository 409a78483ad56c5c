// gemm_bytes: a work-group computes BM pixels (rows) by BN channels (columns) of bytes via local
// memory, four terms at a time.
// NDRange: {column tiles * THREADS, row tiles, SPLIT}; local size {THREADS, 1, 1}.
// Layouts: any; best with channels side by side.   Types: u8, i8; sums in int.
// Needs: as rows.cl and bytes.cl, COLUMNS, STEPS (of 4 * BK terms, per part), BM, BN, TM, TN, SPLIT,
// TERMS_AT_ONCE (4: terms of a pixel are read as vectors), COLUMNS_PADDED; FILTER as [term / 4,
// column, term % 4]; ZERO, the number that means 0; STARTS, what sums begin with, if HAS_STARTS.
#define SUM4 int4
#include "include/parts.cl"
#include "include/rows.cl"
#include "include/shares.cl"
#include "include/bytes.cl"
#define BK 16
#define PITCH_A (BM + 4)
#define READS_A (BM * BK / THREADS)
#define READS_B (BK * BN / 4 / THREADS)
#define ROWS_APART (THREADS / BK)
#define QUADS_APART (THREADS * 4 / BN)
#if TERMS_AT_ONCE == 4
#define READ_QUADS                                                                                \
    _Pragma("unroll") for (int i = 0; i < READS_A; i++) {                                         \
        FIND_INPUT(i)                                                                             \
        next_a[i] = FOUR(ZERO);                                                                   \
        if (inside) next_a[i] = as_uint(IN0_LOAD4(INPUT_AT(i)));                                  \
    }                                                                                             \
    SKIP_TERMS(BK * 4)
#else
#define READ_QUADS                                                                                \
    _Pragma("unroll") for (int i = 0; i < READS_A; i++) next_a[i] = 0;                            \
    _Pragma("unroll") for (int t = 0; t < 4; t++) {                                               \
        _Pragma("unroll") for (int i = 0; i < READS_A; i++) {                                     \
            FIND_INPUT(i)                                                                         \
            uchar byte = (uchar)(ZERO);                                                           \
            if (inside) byte = (uchar)IN0_LOAD(INPUT_AT(i));                                      \
            next_a[i] |= (uint)byte << (8 * t);                                                   \
        }                                                                                         \
        SKIP_TERMS(1)                                                                             \
    }                                                                                             \
    SKIP_TERMS(BK * 4 - 4)
#endif
// Read one step of both factors into registers, and move on to the next.
#define FETCH                                                                                     \
    {                                                                                             \
        READ_QUADS                                                                                \
        _Pragma("unroll") for (int i = 0; i < READS_B; i++)                                       \
            next_b[i] = *(__global const uint4*)(quads + filter_at +                              \
                                                 i * QUADS_APART * COLUMNS_PADDED);               \
        filter_at += BK * COLUMNS_PADDED;                                                         \
    }
#define PUT(s)                                                                                    \
    {                                                                                             \
        _Pragma("unroll") for (int i = 0; i < READS_A; i++)                                       \
            tile_a[s][a_quad][a_row + i * ROWS_APART] = next_a[i];                                \
        _Pragma("unroll") for (int i = 0; i < READS_B; i++)                                       \
            *(__local uint4*)&tile_b[s][b_quad + i * QUADS_APART][b_column] = next_b[i];          \
    }

KERNEL(gemm_bytes) {
    __local uint tile_a[2][BK][PITCH_A] __attribute__((aligned(16)));
    __local uint tile_b[2][BK][BN] __attribute__((aligned(16)));
    const int thread = get_local_id(0);
    const int share_n = thread % (BN / TN) * 4, share_m = thread / (BN / TN) * 4;
    const int first_m = get_group_id(1) * BM, first_n = get_group_id(0) * BN;
    const int part = get_group_id(2);
    const int a_quad = thread % BK, a_row = thread / BK;
    const int b_column = thread % (BN / 4) * 4, b_quad = thread / (BN / 4);
    __global const uint* quads = (__global const uint*)filter;

    DECLARE_ROWS(READS_A, first_m + a_row, ROWS_APART)
    const int start = (part * STEPS * BK + a_quad) * 4;
    DECLARE_TERM(start)
    int filter_at = (part * STEPS * BK + b_quad) * COLUMNS_PADDED + first_n + b_column;

    uint next_a[READS_A];
    uint4 next_b[READS_B];
    int sums[TM][GROUPS_N][4];
    #pragma unroll
    for (int i = 0; i < TM; i++)
        #pragma unroll
        for (int j = 0; j < GROUPS_N; j++)
            #pragma unroll
            for (int k = 0; k < 4; k++) sums[i][j][k] = 0;

    FETCH
    PUT(0)
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int step = 0; step < STEPS; step++) {
        const int s = step & 1;
        if (step + 1 < STEPS) FETCH
        #pragma unroll
        for (int k = 0; k < BK; k++) {
            uint a[TM], b[GROUPS_N][4];
            #pragma unroll
            for (int g = 0; g < GROUPS_M; g++)
                vstore4(*(__local uint4*)&tile_a[s][k][g * (BM / GROUPS_M) + share_m], g, a);
            #pragma unroll
            for (int g = 0; g < GROUPS_N; g++)
                vstore4(*(__local uint4*)&tile_b[s][k][g * (BN / GROUPS_N) + share_n], 0, b[g]);
            #pragma unroll
            for (int i = 0; i < TM; i++)
                #pragma unroll
                for (int j = 0; j < GROUPS_N; j++)
                    #pragma unroll
                    for (int c = 0; c < 4; c++) DOT4(sums[i][j][c], a[i], b[j][c]);
        }
        if (step + 1 < STEPS) PUT(s ^ 1)
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    int4 sum[TM][GROUPS_N];
    #pragma unroll
    for (int i = 0; i < TM; i++)
        #pragma unroll
        for (int j = 0; j < GROUPS_N; j++) sum[i][j] = vload4(0, sums[i][j]);
#if HAS_STARTS
    if (part == 0) {
        VECTORS(sum[i][j] += vload4(0, starts + n))
    }
#endif
    STORE_SUMS(ROWS, COLUMNS)
}
