// attention_mma: a work-group computes BM queries of one head on tensor cores, BN keys at a time.
// NDRange: {tiles * THREADS, batches, 1}; local size {THREADS, 1, 1}, a warp for every 16 queries.
// Layouts: the elements of a query, key and value side by side, rows at multiples of 8 elements.
// Types: half; scores, weights' totals and sums in float, weights rounded to half.
// Needs: SIZE, VALUES (of a head, multiples of 16), QUERIES, KEYS, BM, BN (multiples of 16), SCALE,
// MASKED(score, b, query, key), CAUSAL, HAS_SINK, SINK(b, query).
// The scores stay in the registers of the tensor cores' results, which are those of their factors:
// a work-item holds two rows, eight apart, and neighbouring pairs of columns, eight apart.
#define THREADS (BM * 2)
#define STEPS_E (SIZE / 16)
#define TILES_K (BN / 8)
#define TILES_V (VALUES / 8)
// An odd number of 16 bytes, so that the rows that are read together start in different banks.
#define PITCH (SIZE * 2 + 16)
#define V_PITCH (VALUES * 2 + 16)
#define K_BYTES (BN * PITCH)
#define STAGE_BYTES (K_BYTES + BN * V_PITCH)
#define Q_BYTES (BM * PITCH)
// Queries are only in the way of the second stage, and in registers before that is filled.
#define LOCAL_BYTES \
    (Q_BYTES > STAGE_BYTES ? STAGE_BYTES + Q_BYTES : 2 * STAGE_BYTES)
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
#define EXP2(to, from) asm("ex2.approx.f32 %0, %1;" : "=f"(to) : "f"(from))
#define LOG2_E 1.44269504088896f
// The value of the lane whose number differs in one bit: a row's columns are in four lanes.
#define ACROSS(to, from, bit)                                                               \
    asm volatile("shfl.sync.bfly.b32 %0, %1, %2, 31, 0xffffffff;"                           \
                 : "=f"(to) : "f"(from), "n"(bit))
// Start copying `count` rows of a tensor to local memory; rows beyond `limit` become zeros.
#define FETCH(IN, pointer, first, count, limit, elements, to, pitch)                        \
    _Pragma("unroll") for (int i = thread; i < (count) * ((elements) / 8); i += THREADS) {  \
        const int row = i / ((elements) / 8), piece = i % ((elements) / 8);                 \
        const int inside = (first) + row < (limit);                                         \
        COPY((to) + row * (pitch) + piece * 16,                                             \
             pointer + IN##_AT(b, inside ? (first) + row : 0, piece * 8), inside ? 16 : 0); \
    }
#define FETCH_STRIP(start, stage)                                                           \
    {                                                                                       \
        const uint to = tiles_at + (stage) * STAGE_BYTES;                                   \
        FETCH(IN1, in1, start, BN, KEYS, SIZE, to, PITCH)                                   \
        FETCH(IN2, in2, start, BN, KEYS, VALUES, to + K_BYTES, V_PITCH)                     \
    }

KERNEL(attention_mma) {
    LOCAL_ARRAY(uchar, tiles, LOCAL_BYTES, , 128);
    const uint tiles_at = (uint)(size_t)tiles;
    const int thread = get_local_id(0), lane = thread & 31, warp = thread >> 5;
    const int first = get_group_id(0) * BM, b = get_group_id(1);
    const int own = first + warp * 16 + (lane >> 2);  // this work-item's first row
    const int limit = CAUSAL ? min(KEYS, first + BM) : KEYS;

    FETCH_STRIP(0, 0)
    FETCH(IN0, in0, first, BM, QUERIES, SIZE, tiles_at + STAGE_BYTES, PITCH)
    CLOSE_STAGE();
    float best[2], total[2], sum[TILES_V][4];
    #pragma unroll
    for (int r = 0; r < 2; r++) {
        best[r] = -INFINITY;
        total[r] = 0;
#if HAS_SINK
        best[r] = SINK(b, min(own + r * 8, QUERIES - 1));
        total[r] = (lane & 3) == 0;
#endif
    }
    #pragma unroll
    for (int v = 0; v < TILES_V; v++)
        #pragma unroll
        for (int k = 0; k < 4; k++) sum[v][k] = 0;
    AWAIT(0);
    barrier(CLK_LOCAL_MEM_FENCE);
    uint q[STEPS_E][4];
    #pragma unroll
    for (int e = 0; e < STEPS_E; e++)
        LOAD_MATRICES("", q[e], tiles_at + STAGE_BYTES + (warp * 16 + (lane & 15)) * PITCH +
                                    (e * 2 + (lane >> 4)) * 16);

    int stage = 0;
    for (int start = 0; start < limit; start += BN, stage ^= 1) {
        AWAIT(0);
        barrier(CLK_LOCAL_MEM_FENCE);  // this strip is there, and the one before has been read
        if (start + BN < limit) FETCH_STRIP(start + BN, stage ^ 1)
        CLOSE_STAGE();
        if (first + warp * 16 >= QUERIES) continue;  // this warp only copies
        const uint keys_at = tiles_at + stage * STAGE_BYTES, values_at = keys_at + K_BYTES;
        float s[TILES_K][4];
        #pragma unroll
        for (int j = 0; j < TILES_K; j++)
            #pragma unroll
            for (int k = 0; k < 4; k++) s[j][k] = 0;
        #pragma unroll
        for (int e = 0; e < STEPS_E; e++)
            #pragma unroll
            for (int j = 0; j < TILES_K; j += 2) {
                if (start + j * 8 >= limit) continue;  // no key there is seen
                uint k[4];
                LOAD_MATRICES("", k, keys_at + (j * 8 + (lane & 7) + ((lane >> 4) << 3)) * PITCH +
                                         (e * 2 + ((lane >> 3) & 1)) * 16);
                MULTIPLY(s[j], q[e], k[0], k[1]);
                MULTIPLY(s[j + 1], q[e], k[2], k[3]);
            }
        const int all_seen = start + BN <= KEYS && (!CAUSAL || start + BN <= first);
        #pragma unroll
        for (int j = 0; j < TILES_K; j++)
            #pragma unroll
            for (int k = 0; k < 4; k++) {
                const int key = start + j * 8 + (lane & 3) * 2 + (k & 1);
                const int row = min(own + (k >> 1) * 8, QUERIES - 1);
                if (all_seen || (key < KEYS && !(CAUSAL && key > row)))
                    s[j][k] = MASKED(s[j][k] * (float)(SCALE), b, row, key);
                else
                    s[j][k] = -INFINITY;
            }
        #pragma unroll
        for (int r = 0; r < 2; r++) {
            float highest = best[r], other;
            #pragma unroll
            for (int j = 0; j < TILES_K; j++)
                highest = fmax(highest, fmax(s[j][2 * r], s[j][2 * r + 1]));
            ACROSS(other, highest, 1);
            highest = fmax(highest, other);
            ACROSS(other, highest, 2);
            highest = fmax(highest, other);
            const float shift = highest == -INFINITY ? 0 : highest;
            float fade;
            EXP2(fade, (best[r] - shift) * LOG2_E);
            best[r] = highest;
            total[r] *= fade;
            #pragma unroll
            for (int v = 0; v < TILES_V; v++) {
                sum[v][2 * r] *= fade;
                sum[v][2 * r + 1] *= fade;
            }
            #pragma unroll
            for (int j = 0; j < TILES_K; j++)
                #pragma unroll
                for (int k = 2 * r; k < 2 * r + 2; k++) {
                    EXP2(s[j][k], (s[j][k] - shift) * LOG2_E);
                    total[r] += s[j][k];
                }
        }
        #pragma unroll
        for (int j = 0; j < TILES_K; j += 2) {
            if (start + j * 8 >= limit) continue;  // their weights are zero
            uint p[4];
            PACK(p[0], s[j][0], s[j][1]);
            PACK(p[1], s[j][2], s[j][3]);
            PACK(p[2], s[j + 1][0], s[j + 1][1]);
            PACK(p[3], s[j + 1][2], s[j + 1][3]);
            #pragma unroll
            for (int v = 0; v < TILES_V; v += 2) {
                uint n[4];
                LOAD_MATRICES(".trans", n,
                              values_at + (j * 8 + (lane & 15)) * V_PITCH + (v + (lane >> 4)) * 16);
                MULTIPLY(sum[v], p, n[0], n[1]);
                MULTIPLY(sum[v + 1], p, n[2], n[3]);
            }
        }
    }
    #pragma unroll
    for (int r = 0; r < 2; r++) {
        float other;
        ACROSS(other, total[r], 1);
        total[r] += other;
        ACROSS(other, total[r], 2);
        total[r] += other;
        const int row = own + r * 8;
        if (row < QUERIES) {
            #pragma unroll
            for (int v = 0; v < TILES_V; v++) {
                const float2 pair = (float2)(sum[v][2 * r], sum[v][2 * r + 1]) / total[r];
                const int at = v * 8 + (lane & 3) * 2;
                WRITE2(pair, b, row, at);
            }
        }
    }
}
