// gemm_warps: a work-group computes BM rows by BN columns on tensor cores; every warp takes other
// terms (or columns) of the same tile, straight from memory to registers, and the group adds up what
// its warps have. All that a warp reads of a step is under way at once, without local memory's limit.
// NDRange: {column tiles * THREADS, row tiles, 1}; local size {THREADS, 1, 1}.
// Layouts: terms side by side, rows at multiples of 8 elements.   Types: half; sums in float.
// Needs: ROWS, COLUMNS, CHANNELS_IN (terms of a row, a multiple of 8), STEPS (of 32 terms of each
// warp), TERMS, BM (a multiple of 16), BN, ACROSS (warps side by side at columns), ALONG (at terms),
// DEPTH (steps in registers) or STAGES (steps in local memory; 0 for none); FILTER as [column / 8,
// term / 32, column % 8, term % 32], so that a warp reads neighbours; TILED (rows lie likewise).
#define THREADS (32 * ACROSS * ALONG)
#define WARP_N (BN / ACROSS)
#define TILES_M (BM / 16)
#define TILES_N (WARP_N / 8)
// Rows of floats, so that those that a warp writes at once start in different banks.
#define PITCH (BN % 32 == 8 || BN % 32 == 24 ? BN : BN + 8)
#define FLOATS (46 * 256)
#define CHUNK \
    (ALONG * PITCH * BM <= FLOATS ? BM : ALONG * PITCH * 32 <= FLOATS && BM % 32 == 0 ? 32 : 16)
// Eight neighbouring terms, or zeros; weights are read once, past the processor's own cache.
#define READ(to, from, kind)                                                                \
    {                                                                                       \
        to = (uint4)(0);                                                                    \
        asm volatile("{ .reg .pred p; setp.ne.s32 p, %5, 0;\n"                              \
                     "@p ld.global" kind ".v4.u32 {%0,%1,%2,%3}, [%4]; }"                   \
                     : "+r"((to).s0), "+r"((to).s1), "+r"((to).s2), "+r"((to).s3)           \
                     : "l"(from), "r"(inside));                                             \
    }
#define MULTIPLY(c, a0, a1, a2, a3, b0, b1)                                                 \
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "                       \
                 "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"                    \
                 : "+f"((c)[0]), "+f"((c)[1]), "+f"((c)[2]), "+f"((c)[3])                   \
                 : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1))
#if TILED
#define ROW_START(i) (min(first_m / 8 + (i), (ROWS - 1) / 8) * 8 * CHANNELS_IN + lane * 8)
#define ROW_TERM (term - term % 32) * 8
#else
#define ROW_START(i) IN0_AT(0, 0, 0, min(first_m + (i) * 8 + (lane >> 2), ROWS - 1), 0)
#define ROW_TERM term
#endif
// Read 32 terms of rows and columns. A work-item has eight in a row of each, which the unit takes for
// others of its 16: both factors are exchanged alike, and a sum has no order.
#if STAGES
// A work-item reads what it copied itself: nobody waits for anybody.
#define PIECES (TILES_N + 2 * TILES_M)
#define PIECE(stage, number) (ring + (((stage) * THREADS / 32 + warp) * PIECES + (number)) * 32 + lane)
#define COPY(to, from, bytes)                                                               \
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"                            \
                 : : "r"((uint)(size_t)(to)), "l"(from), "r"(bytes) : "memory")
#define CLOSE_STAGE() asm volatile("cp.async.commit_group;" ::: "memory")
#define AWAIT(n) asm volatile("cp.async.wait_group %0;" : : "n"(n) : "memory")
#define FETCH(stage)                                                                        \
    {                                                                                       \
        const bool inside = term < CHANNELS_IN;                                             \
        __global const half* rows_at = in0 + (inside ? ROW_TERM : 0);                       \
        _Pragma("unroll") for (int j = 0; j < TILES_N; j++)                                 \
            COPY(PIECE(stage, j), columns_at + j * 8 * TERMS, 16);                          \
        _Pragma("unroll") for (int i = 0; i < 2 * TILES_M; i++)                             \
            COPY(PIECE(stage, TILES_N + i), rows_at + from_row[i], inside ? 16 : 0);        \
        term += 32 * ALONG;                                                                 \
        columns_at += 256 * ALONG;                                                          \
    }
#else
#define FETCH(d)                                                                            \
    {                                                                                       \
        const int inside = term < CHANNELS_IN;                                              \
        _Pragma("unroll") for (int j = 0; j < TILES_N; j++)                                 \
            READ(b[d][j], columns_at + j * 8 * TERMS, ".nc.L1::no_allocate")                \
        _Pragma("unroll") for (int i = 0; i < 2 * TILES_M; i++)                             \
            READ(a[d][i], in0 + from_row[i] + ROW_TERM, "")                                 \
        term += 32 * ALONG;                                                                 \
        columns_at += 256 * ALONG;                                                          \
    }
#endif
#define MULTIPLY_ALL(a, b)                                                                  \
    _Pragma("unroll") for (int i = 0; i < TILES_M; i++)                                     \
        _Pragma("unroll") for (int j = 0; j < TILES_N; j++) {                               \
            const uint4 above = (a)[2 * i], below = (a)[2 * i + 1], column = (b)[j];        \
            MULTIPLY(sum[i][j], above.s0, below.s0, above.s1, below.s1, column.s0, column.s1); \
            MULTIPLY(sum[i][j], above.s2, below.s2, above.s3, below.s3, column.s2, column.s3); \
        }
#define ADD_SHARES                                                                          \
    _Pragma("unroll") for (int w = 0; w < ALONG; w++) four +=                               \
        *(__local float4*)(shares + (w * CHUNK + r) * PITCH + c);
#if MEASURED
// Lanes that share a row of the tile, four columns each.
#define ROW_LANES (BN <= 32 ? 8 : BN <= 64 ? 16 : 32)
#define FROM_LANE(to, from, bit)                                                            \
    asm volatile("shfl.sync.bfly.b32 %0, %1, %2, 31, 0xffffffff;"                           \
                 : "=f"(to) : "f"(from), "r"(bit))
#define OVER_ROW(x)                                                                         \
    _Pragma("unroll") for (int bit = 1; bit < ROW_LANES; bit <<= 1) {                       \
        float others;                                                                       \
        FROM_LANE(others, x, bit);                                                          \
        x += others;                                                                        \
    }
#include "include/measured.cl"
#endif

KERNEL(gemm_warps) {
    LOCAL_ARRAY(float, shares, ALONG * CHUNK * PITCH, , 16);
    const int thread = get_local_id(0), lane = thread & 31, warp = thread >> 5;
    const int along = warp / ACROSS, warp_n = warp % ACROSS * WARP_N;
    const int first_m = get_group_id(1) * BM, first_n = get_group_id(0) * BN;
    int term = along * 32 + (lane & 3) * 8;
    int from_row[2 * TILES_M];
    #pragma unroll
    for (int i = 0; i < 2 * TILES_M; i++)
        from_row[i] = ROW_START(i);
    __global const half* columns_at =
        filter + (size_t)(first_n + warp_n) * TERMS + (along * 32 + lane) * 8;

    float sum[TILES_M][TILES_N][4];
    #pragma unroll
    for (int i = 0; i < TILES_M; i++)
        #pragma unroll
        for (int j = 0; j < TILES_N; j++)
            #pragma unroll
            for (int k = 0; k < 4; k++) sum[i][j][k] = 0.0f;
#if STAGES
    LOCAL_ARRAY(uint4, ring, STAGES * THREADS * PIECES, , 16);
    #pragma unroll
    for (int s = 0; s < STAGES; s++) {
        if (s < STEPS) FETCH(s)
        CLOSE_STAGE();
    }
    int stage = 0;
    #pragma unroll 1
    for (int step = 0; step < STEPS; step++) {
        AWAIT(STAGES - 1);
        uint4 a[2 * TILES_M], b[TILES_N];
        #pragma unroll
        for (int j = 0; j < TILES_N; j++) b[j] = *PIECE(stage, j);
        #pragma unroll
        for (int i = 0; i < 2 * TILES_M; i++) a[i] = *PIECE(stage, TILES_N + i);
        MULTIPLY_ALL(a, b)
        if (step + STAGES < STEPS) FETCH(stage)
        CLOSE_STAGE();
        stage = stage == STAGES - 1 ? 0 : stage + 1;
    }
#else
    uint4 a[DEPTH][2 * TILES_M], b[DEPTH][TILES_N];
    #pragma unroll
    for (int d = 0; d < DEPTH; d++) FETCH(d)
    #pragma unroll 1
    for (int step = 0; step < STEPS; step += DEPTH) {
        #pragma unroll
        for (int d = 0; d < DEPTH; d++) {
            MULTIPLY_ALL(a[d], b[d])
            FETCH(d)
        }
    }
#endif

    #pragma unroll
    for (int chunk = 0; chunk < BM; chunk += CHUNK) {
        if (chunk > 0) barrier(CLK_LOCAL_MEM_FENCE);
        #pragma unroll
        for (int i = chunk / 16; i < (chunk + CHUNK) / 16; i++)
            #pragma unroll
            for (int j = 0; j < TILES_N; j++)
                #pragma unroll
                for (int k = 0; k < 4; k += 2) {
                    const int r = along * CHUNK + i * 16 - chunk + (lane >> 2) + k * 4;
                    *(__local float2*)(shares + r * PITCH + warp_n + j * 8 + (lane & 3) * 2) =
                        (float2)(sum[i][j][k], sum[i][j][k + 1]);
                }
        barrier(CLK_LOCAL_MEM_FENCE);
#if MEASURED
        // Whole warps go through here: lanes beyond the tile have nothing, but hand on sums.
        for (int at = thread; at < CHUNK * ROW_LANES; at += THREADS) {
            const int r = at / ROW_LANES, c = at % ROW_LANES * 4;
            const int m = first_m + chunk + r, n = first_n + c;
            const bool inside = c < BN && m < ROWS && n < COLUMNS;
            float4 four = (float4)(0.0f);
            if (inside) {
                ADD_SHARES
                WRITE_MEASURED(four, m, n)
            }
            float mean = four.s0 + four.s1 + (four.s2 + four.s3);
            OVER_ROW(mean)
            mean /= min(BN, COLUMNS - first_n);
            const float4 off = four - mean;
            float squares = inside ? dot(off, off) : 0.0f;
            OVER_ROW(squares)
            if (c == 0 && m < ROWS) {
                const int moments_at = OUT1_AT(m, get_group_id(0), 0);
                OUT1_STORE2(moments_at, (float2)(mean, squares));
            }
        }
#else
        for (int at = thread; at < CHUNK * BN / 4; at += THREADS) {
            const int r = at / (BN / 4), c = at % (BN / 4) * 4;
            const int m = first_m + chunk + r, n = first_n + c;
            if (m >= ROWS || n >= COLUMNS) continue;
            float4 four = (float4)(0.0f);
            ADD_SHARES
            if (n + 4 <= COLUMNS) {
                WRITE4(four, m, n);
            } else {
                WRITE4_FIRST(COLUMNS - n, four, m, n);
            }
        }
#endif
    }
}
