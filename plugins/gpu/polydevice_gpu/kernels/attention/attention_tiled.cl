// attention_tiled: a work-group computes BM queries of one head, BN keys at a time.
// NDRange: {tiles * THREADS, batches, SPLIT}; local size {THREADS, 1, 1}, 16 along keys and values.
// Layouts: any; best with the elements of a query, key and value side by side.
// Types: half, float; sums in float.
// Needs: SIZE, VALUES (of a head), QUERIES, KEYS, BM, BN (multiples of 8 and 16), SCALE,
// MASKED(score, b, query, key), CAUSAL, HAS_SINK, SINK(b, query); WIDE_Q, WIDE_K, WIDE_V: whether four
// neighbours are read at once; SPLIT: the keys are cut into so many parts, whose maxima, totals and
// sums go to PARTS for attention_join, of BATCHES heads.
// A work-item's queries lie 8 apart and its keys 16 apart; its values come in fours.
#define TX 16
#define TY 8
#define THREADS (TX * TY)
#define RM (BM / TY)
#define RN (BN / TX)
#define SIZE4 ((SIZE + 3) / 4)
#define VALUES4 ((VALUES + 3) / 4)
#define RV ((VALUES4 + TX - 1) / TX)
// An odd number of fours, so that neighbouring rows start in different banks.
#define PITCH (4 * (SIZE4 | 1))
#define V_PITCH (4 * VALUES4)
#define STRIP (PITCH > V_PITCH ? PITCH : V_PITCH)
#define P_PITCH (BN + 4)
#define LOCAL_BARRIER barrier(CLK_LOCAL_MEM_FENCE)
#define FOUR(p) (*(__local float4*)(p))
#define ONE(IN, row, e, count) ((e) < (count) ? IN##_LOAD(IN##_AT(b, row, e)) : 0.0f)
#define GATHER(IN, row, e, count)                                                          \
    (float4)(ONE(IN, row, e, count), ONE(IN, row, (e) + 1, count),                         \
             ONE(IN, row, (e) + 2, count), ONE(IN, row, (e) + 3, count))
#if WIDE_Q
#define READ_Q(row, e) IN0_LOAD4(IN0_AT(b, row, e))
#else
#define READ_Q(row, e) GATHER(IN0, row, e, SIZE)
#endif
#if WIDE_K
#define READ_K(row, e) IN1_LOAD4(IN1_AT(b, row, e))
#else
#define READ_K(row, e) GATHER(IN1, row, e, SIZE)
#endif
#if WIDE_V
#define READ_V(row, e) IN2_LOAD4(IN2_AT(b, row, e))
#else
#define READ_V(row, e) GATHER(IN2, row, e, VALUES)
#endif

#if CAUSAL
#define UNSEEN(key, row) ((key) >= KEYS || (key) > (row))
#else
#define UNSEEN(key, row) ((key) >= KEYS)
#endif

KERNEL(attention_tiled) {
    LOCAL_ARRAY(float, q_tile, BM * PITCH, , 16);
    LOCAL_ARRAY(float, strip, BN * STRIP, , 16);
    LOCAL_ARRAY(float, p_tile, BM * P_PITCH, , 16);
    LOCAL_ARRAY(float, best_of, BM, [TX + 1], 16);
    const int thread = get_local_id(0), tx = thread % TX, ty = thread / TX;
    const int first = get_group_id(0) * BM, b = get_global_id(1), part = get_global_id(2);
    #pragma unroll 4
    for (int i = thread; i < BM * SIZE4; i += THREADS) {
        const int row = min(first + i / SIZE4, QUERIES - 1), e = i % SIZE4 * 4;
        FOUR(q_tile + i / SIZE4 * PITCH + e) = READ_Q(row, e) * (float)(SCALE);
    }
    float highest[RM], total[RM];
    float4 sum[RM][RV];
    #pragma unroll
    for (int m = 0; m < RM; m++) {
        highest[m] = -INFINITY;
        total[m] = 0;
#if HAS_SINK
        if (part == 0) {
            highest[m] = SINK(b, min(first + ty + m * TY, QUERIES - 1));
            total[m] = tx == 0;
        }
#endif
        #pragma unroll
        for (int v = 0; v < RV; v++) sum[m][v] = (float4)(0.0f);
    }
    const int length = (KEYS + BN * SPLIT - 1) / (BN * SPLIT) * BN, begin = part * length;
    const int limit = min(begin + length, CAUSAL ? min(KEYS, first + BM) : KEYS);
    for (int start = begin; start < limit; start += BN) {
        LOCAL_BARRIER;  // the strip of values has been read
        #pragma unroll 4
        for (int i = thread; i < BN * SIZE4; i += THREADS) {
            const int key = min(start + i / SIZE4, KEYS - 1), e = i % SIZE4 * 4;
            FOUR(strip + i / SIZE4 * PITCH + e) = READ_K(key, e);
        }
        LOCAL_BARRIER;
        float s[RM][RN];
        #pragma unroll
        for (int m = 0; m < RM; m++)
            #pragma unroll
            for (int n = 0; n < RN; n++) s[m][n] = 0;
        #pragma unroll 4
        for (int e = 0; e < SIZE4 * 4; e += 4) {
            float4 k[RN];
            #pragma unroll
            for (int n = 0; n < RN; n++) k[n] = FOUR(strip + (tx + n * TX) * PITCH + e);
            #pragma unroll
            for (int m = 0; m < RM; m++) {
                const float4 q = FOUR(q_tile + (ty + m * TY) * PITCH + e);
                #pragma unroll
                for (int n = 0; n < RN; n++) {
                    s[m][n] = fma(q.x, k[n].x, s[m][n]);
                    s[m][n] = fma(q.y, k[n].y, s[m][n]);
                    s[m][n] = fma(q.z, k[n].z, s[m][n]);
                    s[m][n] = fma(q.w, k[n].w, s[m][n]);
                }
            }
        }
        #pragma unroll
        for (int m = 0; m < RM; m++) {
            const int row = min(first + ty + m * TY, QUERIES - 1);
            float best = -INFINITY;
            #pragma unroll
            for (int n = 0; n < RN; n++) {
                const int key = start + tx + n * TX;
                if (UNSEEN(key, row))
                    s[m][n] = -INFINITY;
                else
                    s[m][n] = MASKED(s[m][n], b, row, key);
                best = fmax(best, s[m][n]);
            }
            best_of[ty + m * TY][tx] = best;
        }
        LOCAL_BARRIER;  // the strip of keys has been read, too
        #pragma unroll 4
        for (int i = thread; i < BN * VALUES4; i += THREADS) {
            const int key = min(start + i / VALUES4, KEYS - 1), e = i % VALUES4 * 4;
            FOUR(strip + i / VALUES4 * V_PITCH + e) = READ_V(key, e);
        }
        #pragma unroll
        for (int m = 0; m < RM; m++) {
            const int row = ty + m * TY;
            const float before = highest[m];
            #pragma unroll
            for (int i = 0; i < TX; i++) highest[m] = fmax(highest[m], best_of[row][i]);
            const float shift = highest[m] == -INFINITY ? 0 : highest[m];
            const float fade = exp(before - shift);
            total[m] *= fade;
            #pragma unroll
            for (int v = 0; v < RV; v++) sum[m][v] *= fade;
            #pragma unroll
            for (int n = 0; n < RN; n++) {
                const float weight = exp(s[m][n] - shift);
                total[m] += weight;
                p_tile[row * P_PITCH + tx + n * TX] = weight;
            }
        }
        LOCAL_BARRIER;
        #pragma unroll 2
        for (int n = 0; n < BN; n += 4) {
            float4 v[4][RV];
            #pragma unroll
            for (int i = 0; i < 4; i++)
                #pragma unroll
                for (int c = 0; c < RV; c++)
                    v[i][c] = FOUR(strip + (n + i) * V_PITCH + 4 * min(tx + c * TX, VALUES4 - 1));
            #pragma unroll
            for (int m = 0; m < RM; m++) {
                const float4 p = FOUR(p_tile + (ty + m * TY) * P_PITCH + n);
                #pragma unroll
                for (int c = 0; c < RV; c++) {
                    sum[m][c] = fma((float4)(p.x), v[0][c], sum[m][c]);
                    sum[m][c] = fma((float4)(p.y), v[1][c], sum[m][c]);
                    sum[m][c] = fma((float4)(p.z), v[2][c], sum[m][c]);
                    sum[m][c] = fma((float4)(p.w), v[3][c], sum[m][c]);
                }
            }
        }
    }
    LOCAL_BARRIER;  // the last maxima have been read
    #pragma unroll
    for (int m = 0; m < RM; m++) best_of[ty + m * TY][tx] = total[m];
    LOCAL_BARRIER;
    #pragma unroll
    for (int m = 0; m < RM; m++) {
        const int row = first + ty + m * TY;
        if (row >= QUERIES) continue;
        float all = 0;
        #pragma unroll
        for (int i = 0; i < TX; i++) all += best_of[ty + m * TY][i];
#if SPLIT > 1
        __global float* own =
            parts + (((size_t)part * BATCHES + b) * QUERIES + row) * (VALUES + 2);
        if (tx == 0) {
            own[0] = highest[m];
            own[1] = all;
        }
        #pragma unroll
        for (int c = 0; c < RV; c++) {
            const int at = 4 * (tx + c * TX);
            float lanes[4];
            vstore4(sum[m][c], 0, lanes);
            for (int lane = 0; lane < 4 && at + lane < VALUES; lane++)
                own[2 + at + lane] = lanes[lane];
        }
#else
        #pragma unroll
        for (int c = 0; c < RV; c++) {
            const int at = 4 * (tx + c * TX);
            const float4 y = sum[m][c] / all;
            if (at + 4 <= VALUES)
                WRITE4(y, b, row, at);
            else if (at < VALUES)
                WRITE4_FIRST(VALUES - at, y, b, row, at);
        }
#endif
    }
}
