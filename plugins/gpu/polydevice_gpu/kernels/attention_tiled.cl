// attention_tiled: a work-group computes BM queries of one head, BN keys at a time.
// NDRange: {tiles * TX * TY, batches}; local size {TX * TY, 1}.
// Layouts: any; best with the elements of a key and a value side by side.
// Types: half, float; sums in float.
// Needs: SIZE, VALUES (of a head), QUERIES, KEYS, BM, BN, TX, TY (TX divides BN, TY divides BM), SCALE,
// MASKED(score, b, query, key), CAUSAL, HAS_SINK, SINK(b, query); local memory Q_TILE, KV_TILE,
// P_TILE, PART.
// A work-item's queries lie TY apart, its keys and values TX apart.
#define RM (BM / TY)
#define RN (BN / TX)
#define RV ((VALUES + TX - 1) / TX)
#define THREADS (TX * TY)
#define PITCH (SIZE + 1)
#define LOCAL_BARRIER barrier(CLK_LOCAL_MEM_FENCE)

KERNEL(attention_tiled) {
    const int thread = get_local_id(0), tx = thread % TX, ty = thread / TX;
    const int first = get_group_id(0) * BM, b = get_global_id(1);
    for (int i = thread; i < BM * SIZE; i += THREADS) {
        const int row = min(first + i / SIZE, QUERIES - 1);
        q_tile[i / SIZE * PITCH + i % SIZE] = IN0_LOAD(IN0_AT(b, row, i % SIZE)) * SCALE;
    }
    float highest[RM], total[RM], sum[RM][RV];
    #pragma unroll
    for (int m = 0; m < RM; m++) {
        highest[m] = -INFINITY;
        total[m] = 0;
#if HAS_SINK
        highest[m] = SINK(b, min(first + ty + m * TY, QUERIES - 1));
        total[m] = tx == 0;
#endif
        #pragma unroll
        for (int v = 0; v < RV; v++) sum[m][v] = 0;
    }
    const int limit = CAUSAL ? min(KEYS, first + BM) : KEYS;
    for (int start = 0; start < limit; start += BN) {
        LOCAL_BARRIER;  // the strip of values has been read
        for (int i = thread; i < BN * SIZE; i += THREADS) {
            const int key = min(start + i / SIZE, KEYS - 1);
            kv_tile[i / SIZE * PITCH + i % SIZE] = IN1_LOAD(IN1_AT(b, key, i % SIZE));
        }
        LOCAL_BARRIER;
        float s[RM][RN];
        #pragma unroll
        for (int m = 0; m < RM; m++)
            #pragma unroll
            for (int n = 0; n < RN; n++) s[m][n] = 0;
        #pragma unroll 8
        for (int e = 0; e < SIZE; e++) {
            float k[RN];
            #pragma unroll
            for (int n = 0; n < RN; n++) k[n] = kv_tile[(tx + n * TX) * PITCH + e];
            #pragma unroll
            for (int m = 0; m < RM; m++) {
                const float q = q_tile[(ty + m * TY) * PITCH + e];
                #pragma unroll
                for (int n = 0; n < RN; n++) s[m][n] += q * k[n];
            }
        }
        #pragma unroll
        for (int m = 0; m < RM; m++) {
            const int row = min(first + ty + m * TY, QUERIES - 1);
            float best = -INFINITY;
            #pragma unroll
            for (int n = 0; n < RN; n++) {
                const int key = start + tx + n * TX;
                if (key >= KEYS || (CAUSAL && key > row))
                    s[m][n] = -INFINITY;
                else
                    s[m][n] = MASKED(s[m][n], b, row, key);
                best = fmax(best, s[m][n]);
            }
            part[(ty + m * TY) * (TX + 1) + tx] = best;
        }
        LOCAL_BARRIER;  // the strip of keys has been read, too
        #pragma unroll
        for (int m = 0; m < RM; m++) {
            const int row = ty + m * TY;
            const float before = highest[m];
            for (int i = 0; i < TX; i++) highest[m] = fmax(highest[m], part[row * (TX + 1) + i]);
            const float shift = highest[m] == -INFINITY ? 0 : highest[m];
            const float fade = exp(before - shift);
            total[m] *= fade;
            #pragma unroll
            for (int v = 0; v < RV; v++) sum[m][v] *= fade;
            #pragma unroll
            for (int n = 0; n < RN; n++) {
                const float weight = exp(s[m][n] - shift);
                total[m] += weight;
                p_tile[row * (BN + 1) + tx + n * TX] = weight;
            }
        }
        for (int i = thread; i < BN * VALUES; i += THREADS) {
            const int key = min(start + i / VALUES, KEYS - 1);
            kv_tile[i] = IN2_LOAD(IN2_AT(b, key, i % VALUES));
        }
        LOCAL_BARRIER;
        #pragma unroll 4
        for (int n = 0; n < BN; n++) {
            float v[RV];
            #pragma unroll
            for (int c = 0; c < RV; c++) v[c] = kv_tile[n * VALUES + min(tx + c * TX, VALUES - 1)];
            #pragma unroll
            for (int m = 0; m < RM; m++) {
                const float p = p_tile[(ty + m * TY) * (BN + 1) + n];
                #pragma unroll
                for (int c = 0; c < RV; c++) sum[m][c] += p * v[c];
            }
        }
    }
    #pragma unroll
    for (int m = 0; m < RM; m++) part[(ty + m * TY) * (TX + 1) + tx] = total[m];
    LOCAL_BARRIER;
    #pragma unroll
    for (int m = 0; m < RM; m++) {
        const int row = first + ty + m * TY;
        if (row >= QUERIES) continue;
        float all = 0;
        for (int i = 0; i < TX; i++) all += part[(ty + m * TY) * (TX + 1) + i];
        #pragma unroll
        for (int c = 0; c < RV; c++)
            if (tx + c * TX < VALUES) WRITE(sum[m][c] / all, b, row, tx + c * TX);
    }
}
