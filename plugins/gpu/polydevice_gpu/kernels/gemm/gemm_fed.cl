// gemm_fed: a work-group computes BM rows by BN columns with the matrix instruction of warp groups;
// one more warp group does nothing but copy for the others: rows piece by piece, columns in bulk.
// NDRange: {column tiles * THREADS, row tiles}; local size {THREADS, 1, 1}.
// Layouts: terms side by side, a multiple of 8 of them.   Types: half; sums in float.
// Needs: as warp_group_matrices.cl, STEPS (of BK terms, 64), CHANNELS_IN, STAGES, WIDE (columns are a
// multiple of 8), IN0_AT; FILTER as `in_strips` lays it out.
#define ELEMENT_BYTES 2
#define TERMS_AND_TYPES "k16.f32.f16.f16"
#define HOW "1, 1, 1, 0, 0"
#define SUM2 float2
#define SUM8 float8
#define SUM_IN(x) "+f"(x)
#define PENDING "0"
#define BEGIN(eight, n)
#define TOGETHER 1
#include "include/warp_group_matrices.cl"
#define GROUPS (BM / 64)
#define COPIES (BM * PIECES / 128)
#define ROWS_APART (128 / PIECES)
#define COLUMN_BYTES (BN * ROW_BYTES)
#define STAGE_BYTES (BM * ROW_BYTES + COLUMN_BYTES)
#define LAG (STAGES - 2)
// Barriers of local memory, one of each kind for every stage: `FULL`, where who copies says that a
// stage has come, and `FREE`, where each warp says that its products of it are done.
#define FULL(stage) (barriers_at + (stage) * 8)
#define FREE(stage) (barriers_at + (STAGES + (stage)) * 8)
#define SET_BARRIER(at, count)                                                              \
    asm volatile("//@warp_group mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(at), "r"(count) : "memory")
#define ARRIVE(at)                                                                          \
    asm volatile("//@warp_group mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(at) : "memory")
// By one work-item of each warp, without a branch.
#define ARRIVE_ONCE(at)                                                                     \
    asm volatile("{ .reg .pred one;\n setp.eq.u32 one, %1, 0;\n"                            \
                 "//@warp_group @one mbarrier.arrive.shared::cta.b64 _, [%0];\n }"          \
                 ::"r"(at), "r"(lane) : "memory")
#define MEET(at, phase)                                                                     \
    asm volatile("{ .reg .pred done;\n"                                                     \
                 "//@warp_group AGAIN:\n"                                                   \
                 "//@warp_group mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n" \
                 "//@warp_group @done bra DONE;\n"                                          \
                 "//@warp_group bra AGAIN;\n"                                               \
                 "//@warp_group DONE:\n }" ::"r"(at), "r"(phase) : "memory")
// Copy 64 columns of a stage at once; its barrier waits for the bytes that it expects.
#define STRIP_BYTES (64 * ROW_BYTES)
#define EXPECT(at, bytes)                                                                   \
    asm volatile("//@warp_group mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"     \
                 ::"r"(at), "r"(bytes) : "memory")
#define COPY_STRIP(to, from, at)                                                            \
    asm volatile("//@warp_group cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes " \
                 "[%0], [%1], %3, [%2];" ::"r"(to), "l"(from), "r"(at), "r"(STRIP_BYTES) : "memory")
#define FENCE_COPIES() asm volatile("//@warp_group fence.proxy.async.shared::cta;" ::: "memory")
#define NEXT_STAGE(stage, phase)                                                            \
    if (++stage == STAGES) stage = 0, phase ^= 1;

KERNEL(gemm_fed) {
    LOCAL_ARRAY(ushort, tiles, STAGES * STAGE_BYTES / 2, , 1024);
    LOCAL_ARRAY(ulong, barriers, 2 * STAGES, , 16);
    const uint tiles_at = (uint)(size_t)tiles, barriers_at = (uint)(size_t)barriers;
    const int thread = get_local_id(0), lane = thread & 31, warp = thread >> 5;
    // Eight rows of tiles take turns at the same columns, which they find in the cache.
    const int across = get_num_groups(0), tile = get_group_id(1) * across + get_group_id(0);
    const int above = tile / (8 * across) * 8, high = min((int)get_num_groups(1) - above, 8);
    const int first_m = (above + tile % (8 * across) % high) * BM;
    const int tile_n = tile % (8 * across) / high, first_n = tile_n * BN;
    if (thread == 0) {
        #pragma unroll
        for (int s = 0; s < STAGES; s++) {
            SET_BARRIER(FULL(s), 128 + 1);
            SET_BARRIER(FREE(s), 4 * GROUPS);
        }
        asm volatile("//@warp_group fence.mbarrier_init.release.cluster;" ::: "memory");
        FENCE_COPIES();
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    uint stage = 0, phase = 0;
    if (warp >= 4 * GROUPS) {
        const int own = thread - 128 * GROUPS, row = own / PIECES, piece = own % PIECES;
        int from_row[COPIES], term = piece * PER_PIECE;
        #pragma unroll
        for (int i = 0; i < COPIES; i++)
            from_row[i] = IN0_AT(0, 0, 0, min(first_m + row + i * ROWS_APART, ROWS - 1), 0);
        __global const half* columns_at = filter + (size_t)tile_n * STEPS * (COLUMN_BYTES / 2);
        uint told = 0;
        for (int step = 0; step < STEPS + LAG; step++) {
            if (step < STEPS) {
                if (step >= STAGES) MEET(FREE(stage), phase ^ 1);
                const uint to = tiles_at + stage * STAGE_BYTES;
                if (own == 0) {
                    EXPECT(FULL(stage), COLUMN_BYTES);
                    #pragma unroll
                    for (int i = 0; i < BN / 64; i++)
                        COPY_STRIP(to + BM * ROW_BYTES + i * STRIP_BYTES,
                                   columns_at + (size_t)i * STEPS * (STRIP_BYTES / 2), FULL(stage));
                }
                columns_at += STRIP_BYTES / 2;
                // What is beyond the last row is not stored, but terms beyond the last must be zero.
                const int bytes = term < CHANNELS_IN ? 16 : 0;
                __global const half* from = in0 + (term < CHANNELS_IN ? term : 0);
                #pragma unroll
                for (int i = 0; i < COPIES; i++)
                    COPY(to + PLACE(row + i * ROWS_APART, piece), from + from_row[i], bytes);
                term += BK;
                NEXT_STAGE(stage, phase)
            }
            CLOSE_STAGE();
            if (step >= LAG) {
                AWAIT(LAG);
                FENCE_COPIES();
                ARRIVE(FULL(told));
                if (++told == STAGES) told = 0;
            }
        }
    } else {
        float sum[SUMS];
        #pragma unroll
        for (int at = 0; at < SUMS; at++) sum[at] = 0;
        for (int step = 0; step < STEPS; step++) {
            MEET(FULL(stage), phase);
            const uint at = tiles_at + stage * STAGE_BYTES;
            const ulong a = MATRIX(at + warp / 4 * 64 * ROW_BYTES);
            const ulong b = MATRIX(at + BM * ROW_BYTES);
            MULTIPLY(a, b);
            ARRIVE_ONCE(FREE(stage));
            NEXT_STAGE(stage, phase)
        }
        const int sums_n = first_n + (lane & 3) * 2, eights_n = first_n + (lane & 3) * 8;
        const int sums_m = first_m + warp / 4 * 64 + warp % 4 * 16 + (lane >> 2);
#if WIDE
        WRITE_EIGHTS
#else
        PAIRS_INSIDE(WRITE2(pair, m, n))
#endif
    }
}
