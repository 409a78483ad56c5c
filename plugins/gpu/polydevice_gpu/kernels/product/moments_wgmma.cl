// moments_wgmma: a warp group computes up to 64 rows, which it normalises, by BN columns with the matrix
// instruction of warp groups. What was measured of the rows' slots is read before the first step and
// joined after the last.
// NDRange: {column tiles * 128, row tiles}; local size {128, 1, 1}.
// Layouts: terms side by side, rows at multiples of 8 elements.   Types: half; sums in float.
// Needs: as warp_group_matrices.cl, BN may also be 96; SPREAD (rows of a tile, at most 64), ROWS, COLUMNS
// (a multiple of 8), CHANNELS_IN (terms of a row), STEPS (of BK terms), TERMS, STAGES; FILTER as [column,
// term], in the order of `for_eights`; IN4, mean and squares about it of each row and slot; SLOTS, WIDTH
// (terms of a slot, of which the last may have fewer), EPSILON; for each column COLUMN_SUMS (of the
// weights) and SHIFTS. NVIDIA's PTX.
#define PRODUCT moments_wgmma
#define THREADS 128
#define ELEMENT_BYTES 2
#define TERMS_AND_TYPES "k16.f32.f16.f16"
#define HOW "1, 1, 1, 0, 0"
#define SUM2 float2
#define SUM8 float8
#define SUM_IN(x) "+f"(x)
#define PENDING "1"
#define TOGETHER 1
#include "include/warp_group_matrices.cl"
#if BN == 96
#undef SHAPE
#undef NAMES
#undef BOUND
#undef FACTOR_A
#undef FACTOR_B
#define SHAPE "m64n96"
#define NAMES NAMES_FROM_0 ",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47"
#define BOUND BOUND_32(0), EIGHT(32), EIGHT(40)
#define FACTOR_A "%48"
#define FACTOR_B "%49"
#endif
#include "include/moments.cl"
#define LOADS_A (BM * PIECES / THREADS)
#define LOADS_B (BN * PIECES / THREADS)
#define ROWS_APART (THREADS / PIECES)
#define STAGE_BYTES ((BM + BN) * ROW_BYTES)
// Start copying one step of BK terms into a stage, and move on to the next: terms beyond the last one
// must be zero, rows beyond those of the tile are not stored.
#define FETCH(stage)                                                                        \
    {                                                                                       \
        const uint to = tiles_at + (stage) * STAGE_BYTES;                                   \
        const bool inside = term < CHANNELS_IN;                                             \
        __global const half* from = in0 + (inside ? term : 0);                              \
        _Pragma("unroll") for (int i = 0; i < LOADS_A; i++) {                               \
            const int r = row + i * ROWS_APART;                                             \
            COPY(to + PLACE(r, piece), from + from_row[i], inside && r < SPREAD ? 16 : 0);  \
        }                                                                                   \
        _Pragma("unroll") for (int i = 0; i < LOADS_B; i++)                                 \
            COPY(to + BM * ROW_BYTES + PLACE(row + i * ROWS_APART, piece),                  \
                 columns_at + (size_t)(i * ROWS_APART) * TERMS, 16);                        \
        term += BK;                                                                         \
        columns_at += BK;                                                                   \
    }
// Four lanes share a row's sums, and read its slots: two neighbours at once where their number is even.
#if SLOTS % 2 == 0
#define AT_ONCE 2
#define READ_T float4
#define SECOND(read) (read).s23
#else
#define AT_ONCE 1
#define READ_T float2
#define SECOND(read) (read)
#endif
#define READS_OF_LANE ((SLOTS / AT_ONCE + 3) / 4)
#define COUNT_OF(slot) (float)min(CHANNELS_IN - (slot) * WIDTH, WIDTH)
#define EACH_READ(action)                                                                   \
    _Pragma("unroll") for (int i = 0; i < READS_OF_LANE; i++) {                             \
        const int slot = (i * 4 + (lane & 3)) * AT_ONCE;                                    \
        if (slot < SLOTS) { action }                                                        \
    }
#define EACH_SLOT(reads, action)                                                            \
    EACH_READ(                                                                              \
        { const float2 moments = reads[i].s01; const float count = COUNT_OF(slot); action } \
        if (AT_ONCE == 2) {                                                                 \
            const float2 moments = SECOND(reads[i]); const float count = COUNT_OF(slot + 1); action \
        })
#define OVER_FOUR(x)                                                                        \
    _Pragma("unroll") for (int bit = 1; bit < 4; bit <<= 1) {                               \
        float others;                                                                       \
        FROM_LANE(others, x, bit);                                                          \
        x += others;                                                                        \
    }
// Read where it stands, and not where it is used: the products that run meanwhile take longer.
#define READ_EIGHT(to, from)                                                                \
    asm volatile("ld.global.nc.v4.f32 {%0,%1,%2,%3}, [%8];\n"                               \
                 "ld.global.nc.v4.f32 {%4,%5,%6,%7}, [%8+16];"                              \
                 : "=f"((to).s0), "=f"((to).s1), "=f"((to).s2), "=f"((to).s3),              \
                   "=f"((to).s4), "=f"((to).s5), "=f"((to).s6), "=f"((to).s7) : "l"(from))
// Eight neighbouring sums, with what a normalised row makes of them.
#define NORMALISED(eight)                                                                   \
    SUM8 eight = (SUM8)(                                                                    \
        sum[at + h], sum[at + h + 1], sum[at + h + 4], sum[at + h + 5],                     \
        sum[at + h + 8], sum[at + h + 9], sum[at + h + 12], sum[at + h + 13]);              \
    eight = (eight - mean[h / 2] * of_columns[at / 16]) * factor[h / 2] + shift[at / 16];

KERNEL(PRODUCT) {
    LOCAL_ARRAY(ushort, tiles, STAGES * STAGE_BYTES / 2, , 1024);
    const uint tiles_at = (uint)(size_t)tiles;
    const int thread = get_local_id(0), lane = thread & 31, warp = thread >> 5;
    // All rows of tiles take turns at the same columns, which they find in the cache.
    const int high = get_num_groups(1), tile = get_group_id(1) * get_num_groups(0) + get_group_id(0);
    const int first_m = tile % high * SPREAD, first_n = tile / high * BN;
    const int end_m = min(first_m + SPREAD, ROWS);
    const int row = thread / PIECES, piece = thread % PIECES;
    const int sums_m = first_m + warp * 16 + (lane >> 2), eights_n = first_n + (lane & 3) * 8;

    int from_row[LOADS_A], term = piece * PER_PIECE;
    #pragma unroll
    for (int i = 0; i < LOADS_A; i++)
        from_row[i] = IN0_AT(0, 0, 0, min(first_m + row + i * ROWS_APART, end_m - 1), 0);
    __global const half* columns_at = filter + (size_t)(first_n + row) * TERMS + piece * PER_PIECE;

    float sum[SUMS];
    #pragma unroll
    for (int at = 0; at < SUMS; at++) sum[at] = 0;
    for (int s = 0; s < STAGES - 2; s++) {
        if (s < STEPS) FETCH(s)
        CLOSE_STAGE();
    }
    READ_T slots[2][READS_OF_LANE];
    #pragma unroll
    for (int h = 0; h < 2; h++)
        EACH_READ(const int m = min(sums_m + h * 8, ROWS - 1);
                  slots[h][i] = *(__global const READ_T*)(in4 + IN4_AT(m, slot, 0));)
    float8 of_columns[BN / 32], shift[BN / 32];
    #pragma unroll
    for (int i = 0; i < BN / 32; i++) {
        const int n = min(eights_n + i * 32, COLUMNS - 8);
        READ_EIGHT(of_columns[i], column_sums + n);
        READ_EIGHT(shift[i], shifts + n);
    }
    uint reads = tiles_at, writes = STAGES - 2;
    for (int step = 0; step < STEPS; step++) {
        AWAIT(STAGES - 3);
        asm volatile("//@warp_group fence.proxy.async.shared::cta;");  // the copies, before the matrix units
        barrier(CLK_LOCAL_MEM_FENCE);
        const ulong a = MATRIX(reads), b = MATRIX(reads + BM * ROW_BYTES);
        reads = reads == tiles_at + (STAGES - 1) * STAGE_BYTES ? tiles_at : reads + STAGE_BYTES;
        if (step + STAGES - 2 < STEPS) FETCH(writes)
        CLOSE_STAGE();
        writes = writes == STAGES - 1 ? 0 : writes + 1;
        MULTIPLY(a, b);  // awaited one step later
    }
    asm volatile("//@warp_group wgmma.wait_group.sync.aligned 0;" : BOUND : : "memory");

    float mean[2], factor[2];
    #pragma unroll
    for (int h = 0; h < 2; h++) {
        float total = 0.0f, squares = 0.0f;
        EACH_SLOT(slots[h], total += moments.s0 * count;)
        OVER_FOUR(total)
        mean[h] = total / CHANNELS_IN;
        EACH_SLOT(slots[h], const float off = moments.s0 - mean[h];
                  squares += moments.s1 + off * off * count;)
        OVER_FOUR(squares)
        factor[h] = rsqrt(squares / CHANNELS_IN + EPSILON);
    }
#ifdef RESULT8
    // All that the epilogue reads is under way together: no condition, places outside read others.
    RESULT8_T done[SUMS / 8];
    EIGHTS(0, SUMS,
           const int inside_n = min(n, COLUMNS - 8);
           NORMALISED(eight)
           done[at / 8 + h / 2] = RESULT8(eight, min(m, end_m - 1), inside_n))
    EIGHTS(0, SUMS, if (m < end_m && n < COLUMNS)
               OUT0_STORE8(OUT0_AT(m, n), done[at / 8 + h / 2]))
#else
    EIGHTS(0, SUMS, if (m < end_m && n < COLUMNS) {
        NORMALISED(eight)
        WRITE8(eight, m, n);
    })
#endif
}
