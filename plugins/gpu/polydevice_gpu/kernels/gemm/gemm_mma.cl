// gemm_mma: a work-group computes BM pixels (rows) by BN channels (columns) on tensor cores.
// NDRange: {column tiles * THREADS, row tiles, SPLIT}; local size {THREADS, 1, 1}.
// Layouts: channels side by side, a multiple of 8 of them; with GATHERED any.   Types: half, with
// GATHERED float too, rounded to half; sums in float.
// Needs: as rows.cl and arrivals.cl, COLUMNS, STEPS (of 32 terms, per part), BM, BN, WARPS_M,
// WARPS_N, STAGES, SPLIT, WIDE (a multiple of 8 columns), GATHERED (terms are read one by one); FILTER as [column, tap,
// channel].
#include "include/arrivals.cl"
#include "include/rows.cl"
#include "include/trade.cl"
#define THREADS (32 * WARPS_M * WARPS_N)
#define TILES_M (BM / WARPS_M / 16)
#define TILES_N (BN / WARPS_N / 8)
#define LOADS_A (BM * 4 / THREADS)
#define LOADS_B (BN * 4 / THREADS)
#define STAGE_BYTES ((BM + BN) * 64)
// 16 bytes from global to local memory behind the program's back; zeros where `bytes` is 0.
#define COPY(to, from, bytes) \
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes))
#define CLOSE_STAGE() asm volatile("cp.async.commit_group;")
#define AWAIT(n) asm volatile("cp.async.wait_group %0;" ::"n"(n))
#define LOAD_MATRICES(r0, r1, r2, r3, a)                                            \
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"    \
                 : "=r"(r0), "=r"(r1), "=r"(r2), "=r"(r3)                           \
                 : "r"(a))
#define MULTIPLY(c, a, b0, b1)                                                      \
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "               \
                 "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"            \
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])                   \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1))
// Rows are 64 bytes, four pieces of 16; exchanging pieces by row keeps ldmatrix free of conflicts.
#define PLACE(row, piece) ((row) * 64 + (((piece) ^ (((row) >> 1) & 3)) << 4))

#if GATHERED
#define PACK(to, low, high) asm("cvt.rn.f16x2.f32 %0, %2, %1;" : "=r"(to) : "f"(low), "f"(high))
// Read a step of the rows, eight terms of each, and move on to the next; it goes to local memory
// after the products of the step before, during which it is under way.
#define FETCH_ROWS(stage)                                                                         \
    _Pragma("unroll") for (int pair = 0; pair < 4; pair++) {                                      \
        float terms[2][LOADS_A];                                                                  \
        _Pragma("unroll") for (int t = 0; t < 2; t++) {                                           \
            _Pragma("unroll") for (int i = 0; i < LOADS_A; i++) {                                 \
                FIND_INPUT(i)                                                                     \
                terms[t][i] = 0.0f;                                                               \
                if (inside) terms[t][i] = IN0_LOAD(INPUT_AT(i));                                  \
            }                                                                                     \
            SKIP_TERMS(1)                                                                         \
        }                                                                                         \
        _Pragma("unroll") for (int i = 0; i < LOADS_A; i++)                                       \
            PACK(gathered[i][pair], terms[0][i], terms[1][i]);                                    \
    }                                                                                             \
    SKIP_TERMS(24)
#define STORE_ROWS(stage)                                                                         \
    _Pragma("unroll") for (int i = 0; i < LOADS_A; i++)                                           \
        *(__local uint4*)((__local uchar*)tiles + (stage) * STAGE_BYTES +                         \
                          PLACE(row + i * (THREADS / 4), piece)) = vload4(0, gathered[i]);
#else
#define FETCH_ROWS(stage)                                                                         \
    _Pragma("unroll") for (int i = 0; i < LOADS_A; i++) {                                         \
        FIND_INPUT(i)                                                                             \
        const int at = inside ? INPUT_AT(i) : 0;                                                  \
        COPY(tiles_at + (stage) * STAGE_BYTES + PLACE(row + i * (THREADS / 4), piece), in0 + at,  \
             inside ? 16 : 0);                                                                    \
    }                                                                                             \
    SKIP_TERMS(32)
#define STORE_ROWS(stage)
#endif
// Start copying one step of 32 terms into a stage, and move on to the next.
#define FETCH(stage)                                                                              \
    {                                                                                             \
        FETCH_ROWS(stage)                                                                         \
        _Pragma("unroll") for (int i = 0; i < LOADS_B; i++)                                       \
            COPY(tiles_at + (stage) * STAGE_BYTES + BM * 64 +                                     \
                     PLACE(row + i * (THREADS / 4), piece),                                       \
                 columns_at + (size_t)(i * (THREADS / 4)) * TERMS, 16);                           \
        columns_at += 32;                                                                         \
    }

#define CLEAR_SUMS                                                                                \
    _Pragma("unroll") for (int i = 0; i < TILES_M; i++)                                           \
        _Pragma("unroll") for (int j = 0; j < TILES_N; j++)                                       \
            _Pragma("unroll") for (int k = 0; k < 4; k++) sum[i][j][k] = 0.0f;
// Do something with every pair of sums, sum[i][j][k] and the next, at row m, column n.
#define PAIRS(action)                                                                             \
    _Pragma("unroll") for (int i = 0; i < TILES_M; i++)                                           \
        _Pragma("unroll") for (int j = 0; j < TILES_N; j++) {                                     \
            const int n = first_n + warp_n * (BN / WARPS_N) + j * 8 + (lane & 3) * 2;             \
            _Pragma("unroll") for (int k = 0; k < 4; k += 2) {                                    \
                const int m = first_m + warp_m * (BM / WARPS_M) + i * 16 + (lane >> 2) + k * 4;   \
                action;                                                                           \
            }                                                                                     \
        }
// The same with those that are in the result, as `pair`.
#define PAIRS_INSIDE(action)                                                                      \
    PAIRS(if (m < ROWS && n < COLUMNS) {                                                          \
        const float2 pair = (float2)(sum[i][j][k], sum[i][j][k + 1]);                             \
        action;                                                                                   \
    })

KERNEL(gemm_mma) {
    LOCAL_ARRAY(ushort, tiles, STAGES * STAGE_BYTES / 2, , 128);
#if SPLIT > 1
    LOCAL_ARRAY(uint, arrived, 1, , 16);
#endif
    const uint tiles_at = (uint)(size_t)tiles;
    const int thread = get_local_id(0), lane = thread & 31, warp = thread >> 5;
    const int warp_m = warp % WARPS_M, warp_n = warp / WARPS_M;
    const int first_m = get_group_id(1) * BM, first_n = get_group_id(0) * BN;
    const int part = get_group_id(2);
    const int row = thread >> 2, piece = thread & 3;

    DECLARE_ROWS(LOADS_A, first_m + row, THREADS / 4)
    const int start = part * STEPS * 32 + piece * 8;
    DECLARE_TERM(start)
    __global const half* columns_at = filter + (size_t)(first_n + row) * TERMS + start;

    float sum[TILES_M][TILES_N][4];
    CLEAR_SUMS

#if GATHERED
    uint gathered[LOADS_A][4];
#endif
    for (int s = 0; s < STAGES - 1; s++) {
        if (s < STEPS) {
            FETCH(s)
            STORE_ROWS(s)
        }
        CLOSE_STAGE();
    }
    for (int step = 0; step < STEPS; step++) {
        AWAIT(STAGES - 2);
        barrier(CLK_LOCAL_MEM_FENCE);
        const int next = step + STAGES - 1;
        if (next < STEPS) FETCH(next % STAGES)
        CLOSE_STAGE();
        const uint stage_at = tiles_at + (step % STAGES) * STAGE_BYTES;
        #pragma unroll
        for (int half_step = 0; half_step < 2; half_step++) {
            uint a[TILES_M][4], b[TILES_N / 2][4];
            #pragma unroll
            for (int i = 0; i < TILES_M; i++) {
                const int r = warp_m * (BM / WARPS_M) + i * 16 + (lane & 15);
                LOAD_MATRICES(a[i][0], a[i][1], a[i][2], a[i][3],
                              stage_at + PLACE(r, half_step * 2 + (lane >> 4)));
            }
            #pragma unroll
            for (int j = 0; j < TILES_N / 2; j++) {
                const int r = warp_n * (BN / WARPS_N) + j * 16 + (lane & 7) + ((lane >> 4) << 3);
                LOAD_MATRICES(b[j][0], b[j][1], b[j][2], b[j][3],
                              stage_at + BM * 64 + PLACE(r, half_step * 2 + ((lane >> 3) & 1)));
            }
            #pragma unroll
            for (int i = 0; i < TILES_M; i++)
                #pragma unroll
                for (int j = 0; j < TILES_N; j++)
                    MULTIPLY(sum[i][j], a[i], b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1]);
        }
        if (next < STEPS) {
            STORE_ROWS(next % STAGES)
        }
    }
#if SPLIT > 1
    PAIRS_INSIDE(*(__global float2*)PART_AT(part, m, n) = pair)
    LEAVE_UNLESS_LAST(*arrived)
    CLEAR_SUMS
    #pragma unroll
    for (int p = 0; p < SPLIT; p++) {
        // All reads of a part are under way together: no condition, places outside read others.
        float2 pairs[TILES_M][TILES_N][2];
        PAIRS(READ_PART2(pairs[i][j][k / 2], PART_AT(p, min(m, ROWS - 1), min(n, COLUMNS - 2))))
        PAIRS(sum[i][j][k] += pairs[i][j][k / 2].s0; sum[i][j][k + 1] += pairs[i][j][k / 2].s1)
    }
#endif
#if WIDE && TILES_N % 4 == 0
    // Four lanes have a pair of each of four tiles: each gets all pairs of one.
    #pragma unroll
    for (int i = 0; i < TILES_M; i++)
        #pragma unroll
        for (int k = 0; k < 4; k += 2)
            #pragma unroll
            for (int j = 0; j < TILES_N; j += 4) {
                float own[4][2];
                #pragma unroll
                for (int of = 0; of < 4; of++)
                    own[of][0] = sum[i][j + of][k], own[of][1] = sum[i][j + of][k + 1];
                TRADE_ALL(own)
                const int m = first_m + warp_m * (BM / WARPS_M) + i * 16 + (lane >> 2) + k * 4;
                const int n = first_n + warp_n * (BN / WARPS_N) + (j + (lane & 3)) * 8;
                if (m < ROWS && n < COLUMNS) WRITE8(PAIRS_OF(own), m, n);
            }
#else
    PAIRS_INSIDE(WRITE2(pair, m, n))
#endif
}
