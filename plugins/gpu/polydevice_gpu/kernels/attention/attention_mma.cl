// attention_mma: a work-group computes BM queries of one head on tensor cores, BN keys at a time.
// NDRange: {tiles * THREADS, batches, 1}; local size {THREADS, 1, 1}, a warp for every 16 * TALL queries,
// or ALONG warps for the same queries and other keys each, which are joined in the end.
// Layouts: the elements of a query, key and value side by side, rows at multiples of 8 elements.
// Types: half; scores, weights' totals and sums in float, weights rounded to half.
// Needs: SIZE, VALUES (of a head, multiples of 16), QUERIES, KEYS, BM, BN (multiples of 16), TALL, ALONG, SCALE,
// HAS_MASK, MASKED(score, b, query, key), CAUSAL, HAS_SINK, SINK(b, query).
// The scores stay in the registers of the tensor cores' results, which are those of their factors:
// a work-item holds two rows, eight apart, and neighbouring pairs of columns, eight apart.
#include "include/trade.cl"
#define THREADS (BM * 2 / TALL * ALONG)
// Who copies a strip: all, or each warp its own.
#if ALONG > 1
#define COPIERS 32
#define COPIER lane
#define MEET() asm volatile("bar.warp.sync 0xffffffff;" ::: "memory")
#else
#define COPIERS THREADS
#define COPIER thread
#define MEET() barrier(CLK_LOCAL_MEM_FENCE)
#endif
#define EACH(t) _Pragma("unroll") for (int t = 0; t < TALL; t++)
#define STEPS_E (SIZE / 16)
#define TILES_K (BN / 8)
#define TILES_V (VALUES / 8)
// Of a strip, what is left out if it begins beyond the last key that is seen.
#define PARTS (BN == 64 ? 2 : 1)
#define KEYS_OF_PART (BN / PARTS)
// An odd number of 16 bytes, so that the rows that are read together start in different banks.
#define PITCH (SIZE * 2 + 16)
#define V_PITCH (VALUES * 2 + 16)
#define K_BYTES (BN * PITCH)
#define STAGE_BYTES (K_BYTES + BN * V_PITCH)
#define Q_BYTES (BM * PITCH)
// Queries are only in the way of the second stage, and in registers before that is filled.
#define STRIPS_BYTES (Q_BYTES > STAGE_BYTES ? STAGE_BYTES + Q_BYTES : 2 * STAGE_BYTES)
// What a warp has of its queries: sums, and behind them the highest score and the total of each.
#define SHARE_PITCH (VALUES + 8)
#define SHARE_BYTES ((SHARE_PITCH + 2) * BM * 4)
#define LOCAL_BYTES \
    (ALONG * (ALONG > 1 && SHARE_BYTES > STRIPS_BYTES ? SHARE_BYTES : STRIPS_BYTES))
#define COPY(to, from, bytes) \
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes))
#define CLOSE_STAGE() asm volatile("cp.async.commit_group;")
#define AWAIT(n) asm volatile("cp.async.wait_group %0;" ::"n"(n))
#define LOAD_MATRICES(kind, r, a)                                                           \
    asm volatile("ldmatrix.sync.aligned.m8n8.x4" kind ".shared.b16 {%0,%1,%2,%3}, [%4];"    \
                 : "=r"((r)[0]), "=r"((r)[1]), "=r"((r)[2]), "=r"((r)[3])                   \
                 : "r"(a))
#define MULTIPLY(c, a, b0, b1)                                                              \
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "                       \
                 "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"                    \
                 : "+f"((c)[0]), "+f"((c)[1]), "+f"((c)[2]), "+f"((c)[3])                   \
                 : "r"((a)[0]), "r"((a)[1]), "r"((a)[2]), "r"((a)[3]), "r"(b0), "r"(b1))
#define PACK(to, low, high) asm("cvt.rn.f16x2.f32 %0, %2, %1;" : "=r"(to) : "f"(low), "f"(high))
#define EXP2(to, from) asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(to) : "f"(from))
// By how much the highest score may grow, in exponents of two, before sums follow.
#define SLACK 8.0f
#define LOG2_E 1.44269504088896f
// Where a tensor's first row for a batch lies, and how far apart its rows are.
#define DECLARE_PLACE(IN)                                                                   \
    const int IN##_first = IN##_AT(b, 0, 0), IN##_pitch = IN##_AT(b, 1, 0) - IN##_first;
// Start copying `count` rows of a tensor to local memory; rows beyond `limit` become zeros.
#define FETCH(IN, pointer, first, count, limit, elements, to, pitch)                        \
    _Pragma("unroll") for (int n = 0; n < ((count) * ((elements) / 8) - 1) / COPIERS + 1; n++) { \
        const int i = n * COPIERS + COPIER;                                                 \
        if ((count) * ((elements) / 8) % COPIERS && i >= (count) * ((elements) / 8)) break; \
        const int row = i / ((elements) / 8), piece = i % ((elements) / 8);                 \
        const int inside = (first) + row < (limit);                                         \
        COPY((to) + row * (pitch) + piece * 16,                                             \
             pointer + IN##_first + (inside ? (first) + row : 0) * IN##_pitch + piece * 8,  \
             inside ? 16 : 0);                                                              \
    }
#define FETCH_STRIP(start, stage)                                                           \
    {                                                                                       \
        const uint to = tiles_at + (stage) * STAGE_BYTES;                                   \
        FETCH(IN1, in1, start, BN, KEYS, SIZE, to, PITCH)                                   \
        FETCH(IN2, in2, start, BN, KEYS, VALUES, to + K_BYTES, V_PITCH)                     \
    }
// Scores as exponents of two.
#if HAS_MASK
#define WEIGHED(score, row, key) \
    ((key) < KEYS ? MASKED((score) * (float)(SCALE), b, row, key) * LOG2_E : -INFINITY)
#else
#define WEIGHED(score, row, key) ((score) * factor)
#endif

KERNEL(attention_mma) {
    LOCAL_ARRAY(uchar, tiles, LOCAL_BYTES, , 128);
    const int thread = get_local_id(0), lane = thread & 31;
#if ALONG > 1
    const int warp = 0, along = thread >> 5;
    const uint tiles_at = (uint)(size_t)tiles + along * STRIPS_BYTES;
#else
    const int warp = thread >> 5, along = 0;
    const uint tiles_at = (uint)(size_t)tiles;
#endif
    const int first = get_group_id(0) * BM, b = get_group_id(1);
    const int own = first + warp * 16 * TALL + (lane >> 2);  // this work-item's first row
    const int limit = CAUSAL ? min(KEYS, first + BM) : KEYS;
    const float factor = (float)(SCALE) * LOG2_E;
    DECLARE_PLACE(IN0)
    DECLARE_PLACE(IN1)
    DECLARE_PLACE(IN2)

    FETCH_STRIP(along * BN, 0)
    FETCH(IN0, in0, first, BM, QUERIES, SIZE, tiles_at + STAGE_BYTES, PITCH)
    CLOSE_STAGE();
    float best[TALL][2], total[TALL][2], sum[TALL][TILES_V][4];
    EACH(t) {
        #pragma unroll
        for (int r = 0; r < 2; r++) {
            best[t][r] = -INFINITY;
            total[t][r] = 0;
#if HAS_SINK
            if (along == 0) {
                best[t][r] = SINK(b, min(own + t * 16 + r * 8, QUERIES - 1)) * LOG2_E;
                total[t][r] = (lane & 3) == 0;
            }
#endif
        }
        #pragma unroll
        for (int v = 0; v < TILES_V; v++)
            #pragma unroll
            for (int k = 0; k < 4; k++) sum[t][v][k] = 0;
    }
    AWAIT(0);
    MEET();
    uint q[TALL][STEPS_E][4];
    EACH(t)
        #pragma unroll
        for (int e = 0; e < STEPS_E; e++)
            LOAD_MATRICES("", q[t][e],
                          tiles_at + STAGE_BYTES + (e * 2 + (lane >> 4)) * 16 +
                              ((warp * TALL + t) * 16 + (lane & 15)) * PITCH);

    int stage = 0;
    for (int start = along * BN; start < limit; start += ALONG * BN, stage ^= 1) {
        AWAIT(0);
        MEET();  // this strip is there, and the one before has been read
        if (start + ALONG * BN < limit) FETCH_STRIP(start + ALONG * BN, stage ^ 1)
        CLOSE_STAGE();
        if (first + warp * 16 * TALL >= QUERIES) continue;  // this warp only copies
        const uint keys_at = tiles_at + stage * STAGE_BYTES, values_at = keys_at + K_BYTES;
        float s[TALL][TILES_K][4];
        EACH(t)
            #pragma unroll
            for (int j = 0; j < TILES_K; j++)
                #pragma unroll
                for (int k = 0; k < 4; k++) s[t][j][k] = 0;
        #pragma unroll
        for (int part = 0; part < PARTS; part++) {
            if (start + part * KEYS_OF_PART >= limit) continue;  // no key there is seen
            #pragma unroll
            for (int e = 0; e < STEPS_E; e++)
                #pragma unroll
                for (int j = part * TILES_K / PARTS; j < (part + 1) * TILES_K / PARTS; j += 2) {
                    uint k[4];
                    LOAD_MATRICES("", k,
                                  keys_at + (j * 8 + (lane & 7) + ((lane >> 4) << 3)) * PITCH +
                                      (e * 2 + ((lane >> 3) & 1)) * 16);
                    EACH(t) {
                        MULTIPLY(s[t][j], q[t][e], k[0], k[1]);
                        MULTIPLY(s[t][j + 1], q[t][e], k[2], k[3]);
                    }
                }
        }
        EACH(t)
            #pragma unroll
            for (int j = 0; j < TILES_K; j++)
                #pragma unroll
                for (int k = 0; k < 4; k++) {
                    const int key = start + j * 8 + (lane & 3) * 2 + (k & 1);
                    const int row = min(own + t * 16 + (k >> 1) * 8, QUERIES - 1);
                    s[t][j][k] = WEIGHED(s[t][j][k], row, key);
                }
        if (start + BN > KEYS || (CAUSAL && start + BN > first)) {
            EACH(t)
                #pragma unroll
                for (int j = 0; j < TILES_K; j++)
                    #pragma unroll
                    for (int k = 0; k < 4; k++) {
                        const int key = start + j * 8 + (lane & 3) * 2 + (k & 1);
                        const int row = own + t * 16 + (k >> 1) * 8;
                        if (key >= KEYS || (CAUSAL && key > row)) s[t][j][k] = -INFINITY;
                    }
        }
        EACH(t)
            #pragma unroll
            for (int r = 0; r < 2; r++) {
                float highest = best[t][r], other;
                #pragma unroll
                for (int j = 0; j < TILES_K; j++)
                    highest = fmax(highest, fmax(s[t][j][2 * r], s[t][j][2 * r + 1]));
                ACROSS(other, highest, 1);
                highest = fmax(highest, other);
                ACROSS(other, highest, 2);
                highest = fmax(highest, other);
                // Weights stay below 2^SLACK; sums are rarely multiplied. On an H200 384 heads of 64
                // for 197 tokens took 30.0 instead of 33.0 us, and for 128 tokens 12.4 instead of 14.0.
                if (highest > best[t][r] + SLACK) {
                    float fade;
                    EXP2(fade, best[t][r] - highest);
                    best[t][r] = highest;
                    total[t][r] *= fade;
                    #pragma unroll
                    for (int v = 0; v < TILES_V; v++) {
                        sum[t][v][2 * r] *= fade;
                        sum[t][v][2 * r + 1] *= fade;
                    }
                }
                const float shift = best[t][r] == -INFINITY ? 0 : best[t][r];
                #pragma unroll
                for (int j = 0; j < TILES_K; j++)
                    #pragma unroll
                    for (int k = 2 * r; k < 2 * r + 2; k++) {
                        EXP2(s[t][j][k], s[t][j][k] - shift);
                        total[t][r] += s[t][j][k];
                    }
            }
        #pragma unroll
        for (int part = 0; part < PARTS; part++) {
            if (start + part * KEYS_OF_PART >= limit) continue;  // their weights are zero
            #pragma unroll
            for (int j = part * TILES_K / PARTS; j < (part + 1) * TILES_K / PARTS; j += 2) {
                uint p[TALL][4];
                EACH(t) {
                    PACK(p[t][0], s[t][j][0], s[t][j][1]);
                    PACK(p[t][1], s[t][j][2], s[t][j][3]);
                    PACK(p[t][2], s[t][j + 1][0], s[t][j + 1][1]);
                    PACK(p[t][3], s[t][j + 1][2], s[t][j + 1][3]);
                }
                #pragma unroll
                for (int v = 0; v < TILES_V; v += 2) {
                    uint n[4];
                    LOAD_MATRICES(
                        ".trans", n,
                        values_at + (j * 8 + (lane & 15)) * V_PITCH + (v + (lane >> 4)) * 16);
                    EACH(t) {
                        MULTIPLY(sum[t][v], p[t], n[0], n[1]);
                        MULTIPLY(sum[t][v + 1], p[t], n[2], n[3]);
                    }
                }
            }
        }
    }
    EACH(t)
        #pragma unroll
        for (int r = 0; r < 2; r++) {
            float other;
            ACROSS(other, total[t][r], 1);
            total[t][r] += other;
            ACROSS(other, total[t][r], 2);
            total[t][r] += other;
        }
#if ALONG > 1
    __local float* shares = (__local float*)tiles;
    barrier(CLK_LOCAL_MEM_FENCE);  // all strips have been read
    EACH(t)
        #pragma unroll
        for (int r = 0; r < 2; r++) {
            const int at = along * BM + t * 16 + r * 8 + (lane >> 2);
            #pragma unroll
            for (int v = 0; v < TILES_V; v++)
                *(__local float2*)(shares + at * SHARE_PITCH + v * 8 + (lane & 3) * 2) =
                    (float2)(sum[t][v][2 * r], sum[t][v][2 * r + 1]);
            __local float* facts = shares + ALONG * BM * SHARE_PITCH + at * 2;
            if ((lane & 3) == 0) facts[0] = best[t][r], facts[1] = total[t][r];
        }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int i = thread; i < BM * VALUES / 8; i += THREADS) {
        const int q_row = i / (VALUES / 8), at = i % (VALUES / 8) * 8, row = first + q_row;
        if (row >= QUERIES) continue;
        __local const float* facts = shares + ALONG * BM * SHARE_PITCH + q_row * 2;
        float highest = -INFINITY, all = 0;
        #pragma unroll
        for (int w = 0; w < ALONG; w++) highest = fmax(highest, facts[w * BM * 2]);
        const float shift = highest == -INFINITY ? 0 : highest;
        float8 eight = (float8)(0.0f);
        #pragma unroll
        for (int w = 0; w < ALONG; w++) {
            float weight;
            EXP2(weight, facts[w * BM * 2] - shift);
            all += facts[w * BM * 2 + 1] * weight;
            __local const float* from = shares + (w * BM + q_row) * SHARE_PITCH + at;
            eight.lo += *(__local const float4*)from * weight;
            eight.hi += *(__local const float4*)(from + 4) * weight;
        }
        eight *= 1.0f / all;
        WRITE8(eight, b, row, at);
    }
#else
    EACH(t)
        #pragma unroll
        for (int r = 0; r < 2; r++) {
            const int row = own + t * 16 + r * 8;
            const float share = 1.0f / total[t][r];
#if VALUES % 32 == 0
            #pragma unroll
            for (int v = 0; v < TILES_V; v += 4) {
                float own[4][2];
                #pragma unroll
                for (int i = 0; i < 4; i++)
                    #pragma unroll
                    for (int k = 0; k < 2; k++) own[i][k] = sum[t][v + i][2 * r + k] * share;
                TRADE_ALL(own)
                const int at = (v + (lane & 3)) * 8;
                if (row < QUERIES) WRITE8(PAIRS_OF(own), b, row, at);
            }
#else
            if (row < QUERIES) {
                #pragma unroll
                for (int v = 0; v < TILES_V; v++) {
                    const float2 pair = (float2)(sum[t][v][2 * r], sum[t][v][2 * r + 1]) * share;
                    const int at = v * 8 + (lane & 3) * 2;
                    WRITE2(pair, b, row, at);
                }
            }
#endif
        }
#endif
}
