// matmul_compressed_fed: as matmul_compressed_mma, by a few work-groups, each for many tiles of 16 columns. The matrix
// is copied in bulk to local memory, STAGES shares of tiles ahead, so that none waits for its registers.
// NDRange: {GROUPS * THREADS}; local size {THREADS}.
// Layouts: any rows; terms side by side.   Types: half, float; sums in float.
// Needs: BITS, WARPS, DEPTH (shares of a stage that a warp has), MOST_ROWS, SPAN (terms that share a scale in a stage,
// a power of two from 32 to CHUNK), EIGHTS (of a row, as long as whole stages are), STAGES, ROWS, COLUMNS, COUNT (terms),
// STEPS (stages of a tile), TILES, GROUPS; WORDS as [tile, stage, share, half of the tile, lane] of 16 bytes, SCALES and
// ZEROS as [tile, stage, span, column], see `words_of` and `spans_of`.
#define THREADS (32 * WARPS)
#define SHARE (512 / BITS)
#define SHARES (WARPS * DEPTH)
#define CHUNK (SHARES * SHARE)
// Of a share: 32 terms, eight of each lane of a column.
#define PARTS (SHARE / 32)
#define SPANS (CHUNK / SPAN)
// Parts that are summed before the sums are scaled.
#define TOGETHER ((SPAN < SHARE ? SPAN : SHARE) / 32)
#define WORD_BYTES (SHARES * 1024)
#define SCALE_BYTES (SPANS * 64)
#define ZERO_BYTES (SPANS * 16)
#define STAGE_BYTES (WORD_BYTES + SCALE_BYTES + ZERO_BYTES)
#define HALVES (2 * MOST_ROWS)
#define PITCH (EIGHTS + 4)
#include "include/halves_of_rows.cl"
#define BARRIER(stage) ((uint)(size_t)(stages + STAGES * STAGE_BYTES + (stage) * 8))
#define SET_BARRIER(stage)                                                                  \
    asm volatile("//@warp_group mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(BARRIER(stage)) : "memory")
#define FENCE_BARRIERS()                                                                    \
    asm volatile("//@warp_group fence.mbarrier_init.release.cluster;\n"                     \
                 "//@warp_group fence.proxy.async.shared::cta;" ::: "memory")
#define EXPECT(stage, bytes)                                                                \
    asm volatile("//@warp_group mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"     \
                 ::"r"(BARRIER(stage)), "r"(bytes) : "memory")
#define COPY(to, from, bytes, stage)                                                        \
    asm volatile("//@warp_group cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes " \
                 "[%0], [%1], %3, [%2];" ::"r"((uint)(size_t)(to)), "l"(from), "r"(BARRIER(stage)), \
                 "r"(bytes) : "memory")
#define AWAIT(stage, phase)                                                                 \
    asm volatile("{ .reg .pred done;\n"                                                     \
                 "//@warp_group AGAIN:\n"                                                   \
                 "//@warp_group mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n" \
                 "//@warp_group @done bra DONE;\n"                                          \
                 "//@warp_group bra AGAIN;\n"                                               \
                 "//@warp_group DONE:\n }" ::"r"(BARRIER(stage)), "r"(phase) : "memory")
// By one work-item: the next stage of the group's tiles.
#define FETCH(slot)                                                                         \
    {                                                                                       \
        const size_t number = (size_t)coming * STEPS + coming_step;                         \
        __local uchar* to = stages + (slot) * STAGE_BYTES;                                  \
        EXPECT(slot, STAGE_BYTES);                                                          \
        COPY(to, words + number * (WORD_BYTES / 4), WORD_BYTES, slot);                      \
        COPY(to + WORD_BYTES, scales + number * (SCALE_BYTES / 4), SCALE_BYTES, slot);      \
        COPY(to + WORD_BYTES + SCALE_BYTES, zeros + number * ZERO_BYTES, ZERO_BYTES, slot); \
        if (++coming_step == STEPS) coming_step = 0, coming += GROUPS;                      \
    }

KERNEL(matmul_compressed_fed) {
    LOCAL_ARRAY(uchar, stages, STAGES * (STAGE_BYTES + 8), , 128);
    LOCAL_ARRAY(uint, eights, HALVES * PITCH * 4, , 16);
    LOCAL_ARRAY(float, parts, 2 * WARPS * 16 * MOST_ROWS, , 4);
    __local uint* largest = (__local uint*)parts;
    const int thread = get_local_id(0), lane = thread & 31, warp = thread >> 5;
    const int group = get_group_id(0), above = lane >> 2, quarter = lane & 3;
    int coming = group, coming_step = 0;
    if (thread == 0) {
        for (int s = 0; s < STAGES; s++) SET_BARRIER(s);
        FENCE_BARRIERS();
        for (int s = 0; s < STAGES && coming < TILES; s++) FETCH(s)
    }
    // Rows as halves, eight terms at a time.
    #pragma unroll
    for (int r = 0; r < MOST_ROWS; r++) {
        uint most = 0, of_warp = 0;
        for (int k = thread * 4; r < ROWS && k < COUNT; k += THREADS * 4) {
            const float4 four = IN0_LOAD4(IN0_AT(r, k));
            const uint4 sizes = as_uint4(four) & 0x7FFFFFFFu;
            most = max(most, max(max(sizes.s0, sizes.s1), max(sizes.s2, sizes.s3)));
        }
        LARGEST_OF_WARP(of_warp, most);
        if (lane == 0) largest[r * WARPS + warp] = of_warp;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    float back = 0.0f;  // what the row of this lane's sums was divided by
    #pragma unroll
    for (int r = 0; r < MOST_ROWS; r++) {
        uint of_all = largest[r * WARPS];
        #pragma unroll
        for (int w = 1; w < WARPS; w++) of_all = max(of_all, largest[r * WARPS + w]);
        const int exponent = EXPONENT_FOR(of_all);
        if (quarter % MOST_ROWS == r) back = AS_FACTOR(254 - exponent);
        for (int eight = thread; eight < EIGHTS; eight += THREADS) {
            float x[8];
            #pragma unroll
            for (int e = 0; e < 8; e += 4) {
                const int inside = r < ROWS && eight * 8 < COUNT;
                const float4 four = inside ? IN0_LOAD4(IN0_AT(r, eight * 8 + e)) : (float4)(0.0f);
                x[e] = four.s0, x[e + 1] = four.s1, x[e + 2] = four.s2, x[e + 3] = four.s3;
            }
            __local uint* to = eights + (2 * r * PITCH + eight) * 4;
            STORE_HALVES(to, to + PITCH * 4, x, AS_FACTOR(exponent))
        }
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    __local const uint* half_at = eights + (above % HALVES * PITCH + quarter) * 4;
    int slot = 0, turn = 0;
    uint phase = 0;
    for (int tile = group; tile < TILES; tile += GROUPS, turn ^= 1) {
        float total[2] = {0.0f, 0.0f};
        __local float* own = parts + turn * (WARPS * 16 * MOST_ROWS);
        for (int step = 0; step < STEPS; step++) {
            AWAIT(slot, phase);
            __local const uchar* at = stages + slot * STAGE_BYTES;
            __local const float* scale_at = (__local const float*)(at + WORD_BYTES) + above;
            __local const uchar* zero_at = at + WORD_BYTES + SCALE_BYTES + above;
            #pragma unroll
            for (int d = 0; d < DEPTH; d++) {
                const int share = warp * DEPTH + d;
                uint word[2][4], less[2], less_64[2];
                float sum[4], scale[2];
                #pragma unroll
                for (int c = 0; c < 2; c++) {
                    const uint4 four = ((__local const uint4*)at)[(share * 2 + c) * 32 + lane];
                    word[c][0] = four.s0, word[c][1] = four.s1, word[c][2] = four.s2, word[c][3] = four.s3;
                }
                #pragma unroll
                for (int i = 0; i < PARTS; i++) {
                    const uint4 b = *(__local const uint4*)(
                        half_at + ((step * SHARES + share) * PARTS + i) * 16);
                    if (i % TOGETHER == 0) {
                        const int span = (share * PARTS + i) / (SPAN / 32);
                        #pragma unroll
                        for (int c = 0; c < 2; c++) {
                            const uint zero = zero_at[span * 16 + 8 * c];
                            scale[c] = scale_at[span * 16 + 8 * c];
                            less[c] = MINUS_LARGE(zero), less_64[c] = MINUS_64(zero);
                        }
                        #pragma unroll
                        for (int s = 0; s < 4; s++) sum[s] = 0.0f;
                    }
#if BITS == 8
                    MULTIPLY_WORD(sum, 0, word[0][2 * i], word[1][2 * i], b.s0, b.s1)
                    MULTIPLY_WORD(sum, 0, word[0][2 * i + 1], word[1][2 * i + 1], b.s2, b.s3)
#else
                    MULTIPLY_WORD(sum, 0, word[0][i], word[1][i], b.s0, b.s1)
                    MULTIPLY_WORD(sum, 0, word[0][i] >> 8, word[1][i] >> 8, b.s2, b.s3)
#endif
                    if (i % TOGETHER == TOGETHER - 1)
                        #pragma unroll
                        for (int c = 0; c < 2; c++)
                            total[c] = fma(
                                fma(sum[2 * c + 1], 1.0f / 2048, sum[2 * c]) * back, scale[c], total[c]);
                }
            }
            if (step == STEPS - 1 && quarter < MOST_ROWS)
                #pragma unroll
                for (int c = 0; c < 2; c++)
                    own[((warp * 2 + c) * 8 + above) * MOST_ROWS + quarter] = total[c];
            barrier(CLK_LOCAL_MEM_FENCE);
            if (thread == 0 && coming < TILES) FETCH(slot)
            if (++slot == STAGES) slot = 0, phase ^= 1;
        }
        for (int i = thread; i < 16 * MOST_ROWS; i += THREADS) {
            const int n = tile * 16 + i / MOST_ROWS, r = i % MOST_ROWS;
            float all = 0.0f;
            #pragma unroll
            for (int w = 0; w < WARPS; w++) all += own[w * 16 * MOST_ROWS + i];
            if (n < COLUMNS && r < ROWS) WRITE(all, r, n);
        }
    }
}
