// gemm_bytes_mma: a work-group computes BM pixels (rows) by BN channels (columns) of bytes on matrix
// units.
// NDRange: {column tiles * THREADS, row tiles, SPLIT}; local size {THREADS, 1, 1}.
// Layouts: channels side by side, a multiple of 16 of them; with GATHERED any.   Types: u8, i8; sums
// in int.
// Needs: as rows.cl and arrivals.cl, COLUMNS, STEPS (of 64 terms, per part), BM, BN, WARPS_M,
// WARPS_N, STAGES, SPLIT, GATHERED (terms are read one by one), SIGNED (the input has a sign); FILTER
// as [column, tap, channel], of every 16 columns those of a lane in two places; ZERO, the number that
// means 0, and if that is another FILL, 16 of them, and STARTS, what sums begin with.
#include "include/arrivals.cl"
#include "include/rows.cl"
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
#include "include/mma_bytes.cl"
// Rows are 64 bytes, four pieces of 16; exchanging pieces by row keeps ldmatrix free of conflicts.
#define PLACE(row, piece) ((row) * 64 + (((piece) ^ (((row) >> 1) & 3)) << 4))

#if GATHERED
// Read a step of the rows, sixteen terms of each, and move on to the next; it goes to local memory
// after the products of the step before, during which it is under way.
#define FETCH_ROWS(stage)                                                                         \
    _Pragma("unroll") for (int i = 0; i < LOADS_A; i++)                                           \
        _Pragma("unroll") for (int quad = 0; quad < 4; quad++) gathered[i][quad] = 0;             \
    _Pragma("unroll") for (int t = 0; t < 16; t++) {                                              \
        _Pragma("unroll") for (int i = 0; i < LOADS_A; i++) {                                     \
            FIND_INPUT(i)                                                                         \
            uint byte = (uchar)(ZERO);                                                            \
            if (inside) byte = (uchar)IN0_LOAD(INPUT_AT(i));                                      \
            gathered[i][t / 4] |= byte << (8 * (t % 4));                                          \
        }                                                                                         \
        SKIP_TERMS(1)                                                                             \
    }                                                                                             \
    SKIP_TERMS(48)
#define STORE_ROWS(stage)                                                                         \
    _Pragma("unroll") for (int i = 0; i < LOADS_A; i++)                                           \
        *(__local uint4*)((__local uchar*)tiles + (stage) * STAGE_BYTES +                         \
                          PLACE(row + i * (THREADS / 4), piece)) = vload4(0, gathered[i]);
#else
#if HAS_STARTS
#define COPY_ROW(to, at, inside) \
    COPY(to, inside ? (__global const uchar*)in0 + at : (__global const uchar*)fill, 16)
#else
#define COPY_ROW(to, at, inside) COPY(to, (__global const uchar*)in0 + at, inside ? 16 : 0)
#endif
#define FETCH_ROWS(stage)                                                                         \
    _Pragma("unroll") for (int i = 0; i < LOADS_A; i++) {                                         \
        FIND_INPUT(i)                                                                             \
        const int at = inside ? INPUT_AT(i) : 0;                                                  \
        COPY_ROW(tiles_at + (stage) * STAGE_BYTES + PLACE(row + i * (THREADS / 4), piece), at,    \
                 inside);                                                                         \
    }                                                                                             \
    SKIP_TERMS(64)
#define STORE_ROWS(stage)
#endif
// Start copying one step of 64 terms into a stage, and move on to the next.
#define FETCH(stage)                                                                              \
    {                                                                                             \
        FETCH_ROWS(stage)                                                                         \
        _Pragma("unroll") for (int i = 0; i < LOADS_B; i++)                                       \
            COPY(tiles_at + (stage) * STAGE_BYTES + BM * 64 +                                     \
                     PLACE(row + i * (THREADS / 4), piece),                                       \
                 columns_at + (size_t)(i * (THREADS / 4)) * TERMS, 16);                           \
        columns_at += 64;                                                                         \
    }

#define CLEAR_SUMS                                                                                \
    _Pragma("unroll") for (int i = 0; i < TILES_M; i++)                                           \
        _Pragma("unroll") for (int j = 0; j < TILES_N; j++)                                       \
            _Pragma("unroll") for (int k = 0; k < 4; k++) sum[i][j][k] = 0;
// Do something with every four sums that are neighbours, sum[i][j][k], the next, and the same two of
// j + 1, at row m, column n.
#define FOURS(action)                                                                             \
    _Pragma("unroll") for (int i = 0; i < TILES_M; i++)                                           \
        _Pragma("unroll") for (int j = 0; j < TILES_N; j += 2) {                                  \
            const int n = first_n + warp_n * (BN / WARPS_N) + j * 8 + (lane & 3) * 4;             \
            _Pragma("unroll") for (int k = 0; k < 4; k += 2) {                                    \
                const int m = first_m + warp_m * (BM / WARPS_M) + i * 16 + (lane >> 2) + k * 4;   \
                action;                                                                           \
            }                                                                                     \
        }
// The same with those that begin in the result, as `four`.
#define FOURS_INSIDE(action)                                                                      \
    FOURS(if (m < ROWS && n < COLUMNS) {                                                          \
        int4 four = (int4)(sum[i][j][k], sum[i][j][k + 1], sum[i][j + 1][k], sum[i][j + 1][k + 1]); \
        action;                                                                                   \
    })
#if HAS_STARTS
#define BEGIN(four, n) four += *(__global const int4*)(starts + n);
#else
#define BEGIN(four, n)
#endif

KERNEL(gemm_bytes_mma) {
    __local ushort tiles[STAGES * STAGE_BYTES / 2] __attribute__((aligned(128)));
#if SPLIT > 1
    __local uint arrived;
#endif
    const uint tiles_at = (uint)(size_t)tiles;
    const int thread = get_local_id(0), lane = thread & 31, warp = thread >> 5;
    const int warp_m = warp % WARPS_M, warp_n = warp / WARPS_M;
    const int first_m = get_group_id(1) * BM, first_n = get_group_id(0) * BN;
    const int part = get_group_id(2);
    const int row = thread >> 2, piece = thread & 3;

    DECLARE_ROWS(LOADS_A, first_m + row, THREADS / 4)
    const int start = part * STEPS * 64 + piece * 16;
    DECLARE_TERM(start)
    __global const char* columns_at = filter + (size_t)(first_n + row) * TERMS + start;

    int sum[TILES_M][TILES_N][4];
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
    // Parts travel as the bits of floats, which are moved as they are.
#if SPLIT > 1
    const int in_vectors = COLUMNS % 4 == 0;
    FOURS_INSIDE(if (in_vectors) *(__global float4*)PART_AT(part, m, n) = as_float4(four);
                 else { WRITE_PART_LANES(as_float4(four), part, m, n) })
    LEAVE_UNLESS_LAST(arrived)
    CLEAR_SUMS
    for (int p = 0; p < SPLIT; p++) {
        FOURS(float4 read = (float4)(0.0f);
              if (m < ROWS && n < COLUMNS) {
                  if (in_vectors) { READ_PART4(read, PART_AT(p, m, n)); }
                  else { READ_PART_LANES(read, p, m, n) }
              }
              const int4 four = as_int4(read);
              sum[i][j][k] += four.s0; sum[i][j][k + 1] += four.s1;
              sum[i][j + 1][k] += four.s2; sum[i][j + 1][k + 1] += four.s3)
    }
#endif
    FOURS_INSIDE(BEGIN(four, n) if (n + 4 <= COLUMNS) { WRITE4(four, m, n); } else {
        WRITE4_FIRST(COLUMNS - n, four, m, n);
    })
}
