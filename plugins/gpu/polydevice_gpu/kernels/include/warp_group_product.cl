// A product on the matrix units of warp groups, which take both factors from local memory: a
// work-group computes BM rows (pixels) by BN columns (channels).
// Needs: as warp_group_matrices.cl, rows.cl and arrivals.cl, STEPS (of BK terms, per part), TERMS,
// STAGES, SPLIT, LATE (a step's products are awaited one step later, so that the units never wait for
// a barrier); FILTER as [column, tap, channel], in the order of `for_eights` where WIDE. PRODUCT, the
// kernel's name; ELEMENT and WEIGHT of the factors; SUM; FROM_PART4 (four sums of a part);
// COPY_INSIDE (16 bytes, or what stands for those outside); NORMALIZED (rows are, as moments.cl says;
// SPLIT is 1 and rows are FLAT).
#include "include/arrivals.cl"
#include "include/rows.cl"
#define THREADS (2 * BM / TALL)
#ifndef LATE
#define LATE 0
#endif
// How many steps' products may be under way when `MULTIPLY` ends.
#if LATE
#define PENDING "1"
#else
#define PENDING "0"
#endif
#include "include/warp_group_matrices.cl"
#define LOADS_A (BM * PIECES / THREADS)
#define LOADS_B (BN * PIECES / THREADS)
#define ROWS_APART (THREADS / PIECES)
#define STAGE_BYTES ((BM + BN) * ROW_BYTES)
#if FLAT
// Rows lie one after the other: what is beyond the last one is not stored, so that anything will do,
// but terms beyond the last one must be zero.
#define DECLARE_COPIES                                                                      \
    int from_row[LOADS_A], term = part * STEPS * BK + piece * PER_PIECE;                    \
    _Pragma("unroll") for (int i = 0; i < LOADS_A; i++)                                     \
        from_row[i] = IN0_AT(0, 0, 0, min(first_m + row + i * ROWS_APART, ROWS - 1), 0);
#define FETCH_ROWS(to)                                                                      \
    const int bytes = term < CHANNELS_IN ? 16 : 0;                                          \
    __global const ELEMENT* from = in0 + (term < CHANNELS_IN ? term : 0);                   \
    _Pragma("unroll") for (int i = 0; i < LOADS_A; i++)                                     \
        COPY(to + PLACE(row + i * ROWS_APART, piece), from + from_row[i], bytes);           \
    term += BK;
#else
#define DECLARE_COPIES                                                                      \
    DECLARE_ROWS(LOADS_A, first_m + row, ROWS_APART)                                        \
    DECLARE_TERM(part * STEPS * BK + piece * PER_PIECE)
#define FETCH_ROWS(to)                                                                      \
    _Pragma("unroll") for (int i = 0; i < LOADS_A; i++) {                                   \
        FIND_INPUT(i)                                                                       \
        const int at = inside ? INPUT_AT(i) : 0;                                            \
        COPY_INSIDE(to + PLACE(row + i * ROWS_APART, piece), in0 + at, inside);             \
    }                                                                                       \
    SKIP_TERMS(BK)
#endif
// Start copying one step of BK terms into a stage, and move on to the next.
#define FETCH(stage)                                                                        \
    {                                                                                       \
        const uint to = tiles_at + (stage) * STAGE_BYTES;                                   \
        FETCH_ROWS(to)                                                                      \
        _Pragma("unroll") for (int i = 0; i < LOADS_B; i++)                                 \
            COPY(to + BM * ROW_BYTES + PLACE(row + i * ROWS_APART, piece),                  \
                 columns_at + (size_t)(i * ROWS_APART) * TERMS, 16);                        \
        columns_at += BK;                                                                   \
    }
#if NORMALIZED
#include "include/moments.cl"
#define MOMENTS(m) moments[(m) - first_m]
#define DECLARE_MOMENTS                                                                     \
    float base[LOADS_A], total[LOADS_A], squares[LOADS_A];                                  \
    _Pragma("unroll") for (int i = 0; i < LOADS_A; i++)                                     \
        base[i] = vload_half(from_row[i], in0), total[i] = squares[i] = 0.0f;
// Once the copies of a stage have come: zeros beyond the last term count for nothing.
#define GATHER_MOMENTS(at, first_term)                                                      \
    if ((first_term) + piece * PER_PIECE < CHANNELS_IN) {                                   \
        _Pragma("unroll") for (int i = 0; i < LOADS_A; i++)                                 \
            GATHER_PIECE((at) + PLACE(row + i * ROWS_APART, piece), base[i], total[i], squares[i]) \
    }
#define KEEP_MOMENTS                                                                        \
    _Pragma("unroll") for (int i = 0; i < LOADS_A; i++) {                                   \
        JOIN_MOMENTS(found, base[i], total[i], squares[i])                                  \
        if (piece == 0) moments[row + i * ROWS_APART] = found;                              \
    }                                                                                       \
    barrier(CLK_LOCAL_MEM_FENCE);
#endif

// Add a part's eight to the sums.
#define ADD_EIGHT(l, u)                                                                     \
    sum[at + h] += (l).s0, sum[at + h + 1] += (l).s1;                                       \
    sum[at + h + 4] += (l).s2, sum[at + h + 5] += (l).s3;                                   \
    sum[at + h + 8] += (u).s0, sum[at + h + 9] += (u).s1;                                   \
    sum[at + h + 12] += (u).s2, sum[at + h + 13] += (u).s3;

// Add up 32 sums of all parts, from number `first` on.
#define ADD_32(first)                                                                       \
    _Pragma("unroll") for (int at = first; at < (first) + 32; at++) sum[at] = 0;            \
    _Pragma("unroll 1") for (int p = 0; p < SPLIT; p++) {                                   \
        /* Reads are under way together: no condition, places outside read others. */       \
        float4 low[4], high[4];                                                             \
        EIGHTS(first, (first) + 32,                                                         \
               __global const float* eight_at =                                             \
                   PART_AT(p, min(m, ROWS - 1), min(n, COLUMNS - 8));                       \
               READ_PART4(low[(at - (first)) / 8 + h / 2], eight_at);                       \
               READ_PART4(high[(at - (first)) / 8 + h / 2], eight_at + 4))                  \
        EIGHTS(first, (first) + 32,                                                         \
               ADD_EIGHT(FROM_PART4(low[(at - (first)) / 8 + h / 2]),                       \
                         FROM_PART4(high[(at - (first)) / 8 + h / 2])))                     \
    }
#if SUMS == 32
#define ADD_PARTS ADD_32(0)
#elif SUMS == 64
#define ADD_PARTS ADD_32(0) ADD_32(32)
#else
#define ADD_PARTS ADD_32(0) ADD_32(32) ADD_32(64)
#endif

KERNEL(PRODUCT) {
    LOCAL_ARRAY(ushort, tiles, STAGES * STAGE_BYTES / 2, , 1024);
#if NORMALIZED
    LOCAL_ARRAY(float2, moments, BM, , 16);
#endif
    const uint tiles_at = (uint)(size_t)tiles;
    const int thread = get_local_id(0), lane = thread & 31, warp = thread >> 5;
    const int part = get_group_id(2);
    // Eight rows of tiles take turns at the same columns, which they find in the cache.
    const int across = get_num_groups(0), tile = get_group_id(1) * across + get_group_id(0);
    const int above = tile / (8 * across) * 8, high = min((int)get_num_groups(1) - above, 8);
    const int first_m = (above + tile % (8 * across) % high) * BM;
    const int first_n = tile % (8 * across) / high * BN;
    const int row = thread / PIECES, piece = thread % PIECES;
    const int warp_m = first_m + warp / 4 * 64 * TALL + warp % 4 * 16 + (lane >> 2);
    const int sums_n = first_n + (lane & 3) * 2;
    const int eights_n = first_n + (lane & 3) * 8;

    DECLARE_COPIES
    __global const WEIGHT* columns_at =
        filter + (size_t)(first_n + row) * TERMS + part * STEPS * BK + piece * PER_PIECE;

    SUM sum[TALL * SUMS];
    #pragma unroll
    for (int at = 0; at < TALL * SUMS; at++) sum[at] = 0;
    for (int s = 0; s < STAGES - 1 - LATE; s++) {
        if (s < STEPS) FETCH(s)
        CLOSE_STAGE();
    }
#if NORMALIZED
    DECLARE_MOMENTS
#endif
    uint reads = tiles_at, writes = STAGES - 1 - LATE;
    for (int step = 0; step < STEPS; step++) {
        AWAIT(STAGES - 2 - LATE);
        asm volatile("//@warp_group fence.proxy.async.shared::cta;");  // the copies, before the matrix units
        barrier(CLK_LOCAL_MEM_FENCE);
        const ulong a = MATRIX(reads + warp / 4 * 64 * TALL * ROW_BYTES);
        const ulong b = MATRIX(reads + BM * ROW_BYTES);
#if NORMALIZED
        const uint gathers = reads;
#endif
        reads = reads == tiles_at + (STAGES - 1) * STAGE_BYTES ? tiles_at : reads + STAGE_BYTES;
        if (step + STAGES - 1 - LATE < STEPS) FETCH(writes)
        CLOSE_STAGE();
        writes = writes == STAGES - 1 ? 0 : writes + 1;
        MULTIPLY(a, b);
#if NORMALIZED
        GATHER_MOMENTS(gathers, step * BK)  // while the units multiply
#endif
    }
#if LATE
    asm volatile("//@warp_group wgmma.wait_group.sync.aligned 0;" : BOUND : : "memory");
#endif
#if NORMALIZED
    KEEP_MOMENTS
#endif
#if SPLIT > 1
    const int sums_m = warp_m;
#if WIDE
    EIGHTS_INSIDE(*(__global SUM8*)PART_AT(part, m, n) = eight)
#else
    PAIRS_INSIDE(*(__global SUM2*)PART_AT(part, m, n) = pair)
#endif
    __local uint* arrived = (__local uint*)tiles;  // all that is left to keep in local memory
    LEAVE_UNLESS_LAST(*arrived)
#if WIDE
    ADD_PARTS
#else
    #pragma unroll
    for (int at = 0; at < SUMS; at++) sum[at] = 0;
    for (int p = 0; p < SPLIT; p++) {
        // All reads of a part are under way together: no condition, places outside read others.
        float2 pairs[SUMS / 2];
        PAIRS(READ_PART2(pairs[at / 2], PART_AT(p, min(m, ROWS - 1), min(n, COLUMNS - 2))))
        PAIRS(sum[at] += pairs[at / 2].s0; sum[at + 1] += pairs[at / 2].s1)
    }
#endif
#endif
#if TALL == 2
    #pragma unroll
    for (int t = 0; t < TALL; t++) {
        SUM* own = sum + t * SUMS;
        const int sums_m = warp_m + t * 64;
#define sum own
#if WIDE
        WRITE_EIGHTS
#else
        PAIRS_INSIDE(WRITE2(pair, m, n))
#endif
#undef sum
    }
#else
#if SPLIT == 1
    const int sums_m = warp_m;
#endif
#if WIDE
    WRITE_EIGHTS
#else
    PAIRS_INSIDE(WRITE2(pair, m, n))
#endif
#endif
}
