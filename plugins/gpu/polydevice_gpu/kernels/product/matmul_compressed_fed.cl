// matmul_compressed_fed: a few work-groups compute many tiles of 16 columns each of a product of MOST_ROWS rows with a
// matrix of 4 or 8 bits on matrix units; every warp takes other terms. The matrix is copied in bulk to local memory,
// STAGES shares of tiles ahead, so that none waits for its registers.
// Units multiply bytes: numbers of the matrix as they are stored, with rows of four digits of 8 bits. As many terms as
// are summed TOGETHER have an exponent, by which the largest comes to 30 bits; their sums of integers are exact.
// NDRange: {GROUPS * THREADS}; local size {THREADS}.
// Layouts: any rows; terms side by side.   Types: half, float; sums in float.
// Needs: BITS, WARPS, DEPTH (shares of a stage that a warp has), MOST_ROWS, SPAN (terms that share a scale in a stage,
// a power of two from 32 to CHUNK), EIGHTS (of a row, as long as whole stages are), STAGES, ROWS, COLUMNS, COUNT (terms),
// STEPS (stages of a tile), TILES, GROUPS; WORDS as [tile, stage, share, half of the tile, lane] of 16 bytes, SCALES and
// ZEROS as [tile, stage, span / SPANS_OF_SHARE, column, span % SPANS_OF_SHARE], see `words_of` and `spans_of`.
#define THREADS (32 * WARPS)
#define SHARE (512 / BITS)
#define SHARES (WARPS * DEPTH)
#define CHUNK (SHARES * SHARE)
// Of a share: 32 terms, eight of each lane of a column.
#define PARTS (SHARE / 32)
#define SPANS (CHUNK / SPAN)
// Spans of a share, if it has many.
#define SPANS_OF_SHARE (SPAN < SHARE ? SHARE / SPAN : 1)
// Terms whose sums are scaled once, and how many of these sums a row has.
#define TOGETHER (SPAN < SHARE ? SPAN : SHARE)
#define SUMS (EIGHTS * 8 / TOGETHER)
#define WORD_BYTES (SHARES * 1024)
#define SCALE_BYTES (SPANS * 64)
#define ZERO_BYTES (SPANS * 16)
#define STAGE_BYTES (WORD_BYTES + SCALE_BYTES + ZERO_BYTES)
// Columns that units multiply with are four digits each of two rows, the highest first; lanes get pairs of them.
#define TWOS ((MOST_ROWS + 1) / 2)
#define DIGITS (MOST_ROWS > 1 ? 8 : 4)
#define PAIRS (2 * MOST_ROWS)
#define EIGHTS_EACH ((EIGHTS + THREADS - 1) / THREADS)
// Tiles whose sums wait to be added up together.
#define HELD (4 / MOST_ROWS)
// Eights of a row that a work-item has under way.
#define AT_ONCE (EIGHTS_EACH < 8 ? EIGHTS_EACH : 4)
#define SIGNED 0
#include "include/mma_bytes.cl"
#define FROM_LANE(to, from, bit) \
    asm volatile("shfl.sync.bfly.b32 %0, %1, %2, 31, 0xffffffff;" : "=r"(to) : "r"(from), "n"(bit))
#define BYTES_OF(to, a, b, which) \
    asm("prmt.b32 %0, %1, %2, %3;" : "=r"(to) : "r"(a), "r"(b), "n"(which))
#define ADD_BYTES(sum, bytes) \
    asm("dp4a.s32.s32 %0, %1, %2, %0;" : "+r"(sum) : "r"(bytes), "r"(0x01010101))
// Wait for all work-items, and learn whether any of them found something.
#define BARRIER_OF_ANY(result, found)                                                       \
    asm volatile("{ .reg .pred p, q; setp.ne.u32 p, %1, 0; bar.red.or.pred q, 0, p;\n"      \
                 "selp.u32 %0, 1, 0, q; }" : "=r"(result) : "r"((uint)(found)) : "memory")
#define AS_FACTOR(exponent) as_float((uint)(exponent) << 23)
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
// By one work-item: one after the other of the stages that a group multiplies by.
#define FETCH(slot, number_of_stage)                                                        \
    {                                                                                       \
        const int tile_of_stage = group + (number_of_stage) / STEPS * GROUPS;               \
        const size_t number = (size_t)tile_of_stage * STEPS + (number_of_stage) % STEPS;    \
        __local uchar* to = stages + (slot) * STAGE_BYTES;                                  \
        EXPECT(slot, STAGE_BYTES);                                                          \
        COPY(to, words + number * (WORD_BYTES / 4), WORD_BYTES, slot);                      \
        COPY(to + WORD_BYTES, scales + number * (SCALE_BYTES / 4), SCALE_BYTES, slot);      \
        COPY(to + WORD_BYTES + SCALE_BYTES, zeros + number * ZERO_BYTES, ZERO_BYTES, slot); \
    }
#if BITS == 8
#define FIRST_HALF(word, part) (word)[2 * (part)]
#define SECOND_HALF(word, part) (word)[2 * (part) + 1]
#else
#define FIRST_HALF(word, part) ((word)[part] & 0x0F0F0F0Fu)
#define SECOND_HALF(word, part) ((word)[part] >> 4 & 0x0F0F0F0Fu)
#endif
// What a column has of the spans of a share, read at once.
#if SPANS_OF_SHARE == 4
#define BYTES uint
#define SCALES_OF(to, from, column) vstore4(((__local const float4*)(from))[column], 0, to)
#elif SPANS_OF_SHARE == 2
#define BYTES ushort
#define SCALES_OF(to, from, column) vstore2(((__local const float2*)(from))[column], 0, to)
#else
#define BYTES uchar
#define SCALES_OF(to, from, column) (to)[0] = ((__local const float*)(from))[column]
#endif
// Digits of eight terms as pairs of words, in the order in which words of the matrix have their numbers: of 4 bits
// those of even terms lie apart from those of odd ones. `sums` are those of the higher and of the lower two digits.
#define STORE_DIGITS(to, is_inside, sums, x, factor)                                        \
    {                                                                                       \
        uint digit[4][2];                                                                   \
        _Pragma("unroll") for (int w = 0; w < 2; w++) {                                     \
            uint term[4], low[2], high[2];                                                  \
            _Pragma("unroll") for (int e = 0; e < 4; e++) {                                 \
                const float of = (x)[BITS == 8 ? 4 * w + e : 2 * e + w] * (factor);         \
                /* Lower bytes as digits with a sign: what they are less than is carried. */ \
                term[e] = (uint)convert_int_rte(of) + 0x00808080u ^ 0x00808080u;            \
            }                                                                               \
            _Pragma("unroll") for (int h = 0; h < 2; h++) {                                 \
                BYTES_OF(low[h], term[2 * h], term[2 * h + 1], 0x5140);                     \
                BYTES_OF(high[h], term[2 * h], term[2 * h + 1], 0x7362);                    \
            }                                                                               \
            BYTES_OF(digit[0][w], high[0], high[1], 0x7632);                                \
            BYTES_OF(digit[1][w], high[0], high[1], 0x5410);                                \
            BYTES_OF(digit[2][w], low[0], low[1], 0x7632);                                  \
            BYTES_OF(digit[3][w], low[0], low[1], 0x5410);                                  \
        }                                                                                   \
        _Pragma("unroll") for (int d = 0; d < 4; d++) {                                     \
            int of = 0;                                                                     \
            ADD_BYTES(of, digit[d][0]);                                                     \
            ADD_BYTES(of, digit[d][1]);                                                     \
            sums[d / 2] = d % 2 ? 256 * sums[d / 2] + of : of;                              \
            if (is_inside)                                                                  \
                *(__local uint2*)((to) + 16 * d) = (uint2)(digit[d][0], digit[d][1]);       \
        }                                                                                   \
    }

KERNEL(matmul_compressed_fed) {
    LOCAL_ARRAY(uchar, stages, STAGES * (STAGE_BYTES + 8), , 128);
    LOCAL_ARRAY(uint, digits, TWOS * EIGHTS * DIGITS * 2, , 16);
    // Of the higher and the lower digits: their sum, negative, and what sums of products are multiplied by.
    LOCAL_ARRAY(uint4, sums, MOST_ROWS * SUMS, , 16);
    LOCAL_ARRAY(float, parts, 2 * HELD * WARPS * 16 * PAIRS, , 8);
    const int thread = get_local_id(0), lane = thread & 31, warp = thread >> 5;
    const int group = get_group_id(0), above = lane >> 2, quarter = lane & 3;
    const int all_stages = (TILES - group + GROUPS - 1) / GROUPS * STEPS;
    uint largest = 0;
    for (int r = 0; r < MOST_ROWS; r++)
        for (int start = 0; start < EIGHTS_EACH; start += AT_ONCE) {
            float x[AT_ONCE][8];
            #pragma unroll
            for (int i = 0; i < AT_ONCE; i++) {
                const int k = ((start + i) * THREADS + thread) * 8;
                #pragma unroll
                for (int e = 0; e < 8; e += 4) {
                    const float4 four = r < ROWS && k < COUNT ? IN0_LOAD4(IN0_AT(r, k + e)) : (float4)(0.0f);
                    x[i][e] = four.s0, x[i][e + 1] = four.s1, x[i][e + 2] = four.s2, x[i][e + 3] = four.s3;
                }
            }
            // While the first numbers of rows come, each warp lets some stages be copied.
            if (r == 0 && start == 0 && lane == 0)
                for (int s = warp; s < STAGES; s += WARPS) {
                    SET_BARRIER(s);
                    FENCE_BARRIERS();
                    if (s < all_stages) FETCH(s, s)
                }
            #pragma unroll
            for (int i = 0; i < AT_ONCE; i++) {
                const int eight = (start + i) * THREADS + thread;
                uint most = 0, others;
                int sum[2], sum_of_others;
                #pragma unroll
                for (int e = 0; e < 8; e++) most = max(most, as_uint(x[i][e]) & 0x7FFFFFFFu);
                #pragma unroll
                for (int bit = 1; bit < TOGETHER / 8; bit <<= 1) {
                    FROM_LANE(others, most, bit);
                    most = max(most, others);
                }
                largest = max(largest, most);
                const int exponent = min(283 - (int)(most >> 23), 253);
                __local uint* to = digits + (((r / 2 * (EIGHTS / 8) + eight / 8) * DIGITS + r % 2 * 4) * 4
                                             + eight % 4) * 4 + eight / 4 % 2 * 2;
                STORE_DIGITS(to, eight < EIGHTS, sum, x[i], AS_FACTOR(exponent))
                #pragma unroll
                for (int bit = 1; bit < TOGETHER / 8; bit <<= 1)
                    #pragma unroll
                    for (int pair = 0; pair < 2; pair++) {
                        FROM_LANE(sum_of_others, sum[pair], bit);
                        sum[pair] += sum_of_others;
                    }
                if (eight < EIGHTS && eight % (TOGETHER / 8) == 0)
                    sums[r * SUMS + eight / (TOGETHER / 8)] = (uint4)(
                        -sum[0], (uint)(270 - exponent) << 23, -sum[1], (uint)(254 - exponent) << 23);
            }
        }
    uint are_infinite;
    BARRIER_OF_ANY(are_infinite, largest >= 0x7F800000u);
    __local const uint4* digit_at = (__local const uint4*)digits + above % DIGITS * 4 + quarter;
    __local const uint2* sum_at[TWOS];
    #pragma unroll
    for (int t = 0; t < TWOS; t++) {
        const int row = min(2 * t + quarter % PAIRS / 2, MOST_ROWS - 1);
        sum_at[t] = (__local const uint2*)(sums + row * SUMS) + quarter % 2;
    }
    int coming = STAGES;  // the stage that is copied into the place of the next one
    int slot = 0, turn = 0, held = 0;
    uint phase = 0;
    for (int tile = group; tile < TILES; tile += GROUPS) {
        float total[TWOS][2];
        #pragma unroll
        for (int t = 0; t < TWOS; t++) total[t][0] = total[t][1] = 0.0f;
        __local float* own = parts + (turn * HELD + held) * (WARPS * 16 * PAIRS);
        for (int step = 0; step < STEPS; step++) {
            AWAIT(slot, phase);
            __local const uchar* at = stages + slot * STAGE_BYTES;
            uint word[DEPTH][2][4], zero[DEPTH][2];
            float scale[DEPTH][2][SPANS_OF_SHARE];
            int sum[DEPTH][TWOS][4];
            uint4 two[DEPTH][TWOS];
            #pragma unroll
            for (int d = 0; d < DEPTH; d++) {
                const int share = warp * DEPTH + d;
                #pragma unroll
                for (int c = 0; c < 2; c++) {
                    const uint4 four = ((__local const uint4*)at)[(share * 2 + c) * 32 + lane];
                    vstore4(four, 0, word[d][c]);
                    const int column = share * SHARE / SPAN / SPANS_OF_SHARE * 16 + 8 * c + above;
                    SCALES_OF(scale[d][c], at + WORD_BYTES, column);
                    zero[d][c] = ((__local const BYTES*)(at + WORD_BYTES + SCALE_BYTES))[column];
                }
            }
            const int first_share = step * SHARES + warp * DEPTH;
            // Shares in turn, so that no product waits for the one before.
            #pragma unroll
            for (int i = 0; i < PARTS; i++)
                #pragma unroll
                for (int d = 0; d < DEPTH; d++) {
                    const int of_row = first_share + d;
                    const uint a[4] = {FIRST_HALF(word[d][0], i), FIRST_HALF(word[d][1], i),
                                       SECOND_HALF(word[d][0], i), SECOND_HALF(word[d][1], i)};
                    #pragma unroll
                    for (int t = 0; t < TWOS; t++) {
                        if (i % 2 == 0)
                            two[d][t] = digit_at[(t * (EIGHTS / 8) + of_row * (PARTS / 2) + i / 2) * DIGITS * 4];
                        const uint b0 = i % 2 ? two[d][t].s2 : two[d][t].s0;
                        const uint b1 = i % 2 ? two[d][t].s3 : two[d][t].s1;
                        if (i * 32 % TOGETHER == 0)
                            sum[d][t][0] = sum[d][t][1] = sum[d][t][2] = sum[d][t][3] = 0;
                        MULTIPLY(sum[d][t], a, b0, b1);
                    }
                    if ((i + 1) * 32 % TOGETHER) continue;
                    #pragma unroll
                    for (int t = 0; t < TWOS; t++) {
                        const int inner = i * 32 / TOGETHER;
                        const uint2 of = sum_at[t][(of_row * (SHARE / TOGETHER) + inner) * 2];
                        #pragma unroll
                        for (int c = 0; c < 2; c++) {
                            const int shift = (int)of.s0 * (int)(zero[d][c] >> 8 * inner & 255);
                            const int exact = 256 * sum[d][t][2 * c] + sum[d][t][2 * c + 1] + shift;
                            const float scaled = (float)exact * as_float(of.s1);
                            total[t][c] = fma(scaled, scale[d][c][inner], total[t][c]);
                        }
                    }
                }
            if (step == STEPS - 1)
                #pragma unroll
                for (int t = 0; t < TWOS; t++)
                    #pragma unroll
                    for (int c = 0; c < 2; c++)
                        if (t * 4 + quarter < PAIRS)
                            own[((warp * 2 + c) * 8 + above) * PAIRS + t * 4 + quarter] = total[t][c];
            if (coming < all_stages) {
                barrier(CLK_LOCAL_MEM_FENCE);
                if (thread == 0) FETCH(slot, coming)
                coming++;
            }
            if (++slot == STAGES) slot = 0, phase ^= 1;
        }
        if (++held < HELD && tile + GROUPS < TILES) continue;
        barrier(CLK_LOCAL_MEM_FENCE);
        for (int i = thread; i < held * 16 * MOST_ROWS && !are_infinite; i += THREADS) {
            const int before = held - 1 - i / (16 * MOST_ROWS), in_tile = i % (16 * MOST_ROWS);
            const int n = (tile - before * GROUPS) * 16 + in_tile / MOST_ROWS, r = i % MOST_ROWS;
            __local const float* of = parts + (turn * HELD + i / (16 * MOST_ROWS)) * (WARPS * 16 * PAIRS);
            float all = 0.0f;
            #pragma unroll
            for (int w = 0; w < WARPS; w++) {
                const float2 pair = vload2(w * 16 * MOST_ROWS + in_tile, of);
                all += pair.s0 + pair.s1;
            }
            if (n < COLUMNS && r < ROWS) WRITE(all, r, n);
        }
        turn ^= 1, held = 0;
    }
    // Numbers that are none, or have no end, have no digits: one product after the other.
    if (are_infinite)
        for (int tile = group; tile < TILES; tile += GROUPS)
            for (int i = thread; i < 16 * MOST_ROWS; i += THREADS) {
                const int n = tile * 16 + i / MOST_ROWS, r = i % MOST_ROWS;
                float all = 0.0f;
                for (int k = 0; k < COUNT && n < COLUMNS && r < ROWS; k++) {
                    const size_t stage = (size_t)tile * STEPS + k / CHUNK;
                    const size_t half_share = (stage * SHARES + k % CHUNK / SHARE) * 2 + n % 16 / 8;
                    const size_t lane_of = half_share * 32 + n % 8 * 4 + k / 8 % 4;
                    const size_t byte = lane_of * 16 + k % SHARE / 32 * BITS + k % 8 * BITS / 8;
                    const int span = k % CHUNK / SPAN;
                    const size_t shares = stage * SPANS + span / SPANS_OF_SHARE * SPANS_OF_SHARE;
                    const size_t of = shares * 16 + n % 16 * SPANS_OF_SHARE + span % SPANS_OF_SHARE;
                    const int q = ((__global const uchar*)words)[byte] >> k * BITS % 8 & (1 << BITS) - 1;
                    all = fma(IN0_LOAD(IN0_AT(r, k)), (q - zeros[of]) * scales[of], all);
                }
                if (n < COLUMNS && r < ROWS) WRITE(all, r, n);
            }
}
