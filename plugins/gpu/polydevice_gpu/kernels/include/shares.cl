// A tile of BM by BN elements that work-items share in blocks of four by four: each has TM rows of
// TN columns, its blocks BM / GROUPS_M rows and BN / GROUPS_N columns apart, so that work-items side
// by side read and write side by side.
// Needs: BM, BN, TM, TN (multiples of 4); share_m, share_n (the first row and column of the
// work-item), first_m, first_n (of the tile); SUM4, a vector of four sums, if not of floats.
#ifndef SUM4
#define SUM4 float4
#endif
#define THREADS ((BM / TM) * (BN / TN))
#define GROUPS_M (TM / 4)
#define GROUPS_N (TN / 4)
#define CLEAR_SUMS                                                                                \
    _Pragma("unroll") for (int i = 0; i < TM; i++)                                                \
        _Pragma("unroll") for (int j = 0; j < GROUPS_N; j++) sum[i][j] = (SUM4)(0);
#define DECLARE_SUMS                                                                              \
    SUM4 sum[TM][GROUPS_N];                                                                       \
    CLEAR_SUMS
// Add the products of one term: elements of the rows times vectors of the columns.
#define ADD_PRODUCTS(row, column)                                                                 \
    _Pragma("unroll") for (int i = 0; i < TM; i++)                                                \
        _Pragma("unroll") for (int j = 0; j < GROUPS_N; j++)                                      \
            sum[i][j] = fma((float4)(row), column[j], sum[i][j]);
// Do something with every vector of sums, sum[i][j] at row m, column n.
#define VECTORS(action)                                                                           \
    _Pragma("unroll") for (int i = 0; i < TM; i++) {                                              \
        const int m = first_m + i / 4 * (BM / GROUPS_M) + share_m + i % 4;                        \
        _Pragma("unroll") for (int j = 0; j < GROUPS_N; j++) {                                    \
            const int n = first_n + j * (BN / GROUPS_N) + share_n;                                \
            action;                                                                               \
        }                                                                                         \
    }
// The same with those that begin in the result.
#define VECTORS_INSIDE(rows, columns, action)                                                     \
    VECTORS(if (m < rows && n < columns) { action; })
// Store the share by PUT4(v, m, n) and PUT4_FIRST(count, v, m, n) as far as it is in the result.
#define STORE_SUMS(rows, columns)                                                                 \
    VECTORS_INSIDE(rows, columns, if (n + 4 <= columns) { PUT4(sum[i][j], m, n); } else {         \
        PUT4_FIRST(columns - n, sum[i][j], m, n);                                                 \
    })
