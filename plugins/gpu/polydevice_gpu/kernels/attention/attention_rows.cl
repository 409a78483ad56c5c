// attention_rows: one work-item computes ROWS queries of one head, BLOCK keys at a time.
// NDRange: {TILES, batches}; local size free.
// Layouts: values side by side; keys side by side (KEYS_INSIDE) or elements of a key.
// Types: half, float; sums in float.
// Needs: SIZE, VALUES (of a head), QUERIES, KEYS, TILES, LANES, ROWS, SCALE, MASKED(score, b, query,
// key), MASKED<LANES>, CAUSAL, HAS_SINK, SINK(b, query).
// Queries beyond the last one repeat it and are not stored.
#define JOIN2(a, b) a##b
#define JOIN(a, b) JOIN2(a, b)
#define JOIN3(a, b, c) JOIN(JOIN(a, b), c)
#define VECTOR JOIN(float, LANES)
#define VLOAD JOIN(vload, LANES)
#define VSTORE JOIN(vstore, LANES)
#define BLOCK 64
#define CHUNKS ((VALUES + LANES - 1) / LANES)

static inline float sum_of(VECTOR v) {
    float part[LANES];
    VSTORE(v, 0, part);
    for (int n = LANES / 2; n > 0; n /= 2)
        for (int i = 0; i < n; i++) part[i] += part[i + n];
    return part[0];
}

static inline float largest_of(VECTOR v) {
    float part[LANES];
    VSTORE(v, 0, part);
    for (int n = LANES / 2; n > 0; n /= 2)
        for (int i = 0; i < n; i++) part[i] = fmax(part[i], part[i + n]);
    return part[0];
}

#if CAUSAL
#define UNSEEN(key, row) ((key) >= KEYS || (key) > (row))
#else
#define UNSEEN(key, row) ((key) >= KEYS)
#endif

KERNEL(attention_rows) {
    const int tile = get_global_id(0), b = get_global_id(1), first = tile * ROWS;
    if (tile >= TILES) return;
    float q[ROWS][SIZE], p[ROWS][BLOCK], highest[ROWS];
    VECTOR total[ROWS], sum[CHUNKS][ROWS];
    for (int r = 0; r < ROWS; r++) {
        const int row = min(first + r, QUERIES - 1);
        for (int e = 0; e < SIZE; e++) q[r][e] = IN0_LOAD(IN0_AT(b, row, e)) * SCALE;
        for (int c = 0; c < CHUNKS; c++) sum[c][r] = (VECTOR)(0);
        highest[r] = -INFINITY;
        total[r] = (VECTOR)(0);
#if HAS_SINK
        highest[r] = SINK(b, row);
        total[r].s0 = 1;
#endif
    }
    const int limit = CAUSAL ? min(KEYS, first + ROWS) : KEYS;
    for (int start = 0; start < limit; start += BLOCK) {
        const int count = min(BLOCK, limit - start);
        // Scores: a vector of keys at a time, those beyond the last one -infinity.
        for (int at = 0; at < count; at += LANES) {
            const int key = start + at;
            VECTOR s[ROWS];
            for (int r = 0; r < ROWS; r++) s[r] = (VECTOR)(0);
#if KEYS_INSIDE
            if (key + LANES <= KEYS) {
                for (int e = 0; e < SIZE; e++) {
                    const VECTOR k = JOIN(IN1_LOAD, LANES)(IN1_AT(b, key, e));
                    for (int r = 0; r < ROWS; r++) s[r] += q[r][e] * k;
                }
            } else {
                for (int e = 0; e < SIZE; e++) {
                    float part[LANES];
                    for (int i = 0; i < LANES; i++)
                        part[i] = IN1_LOAD(IN1_AT(b, min(key + i, KEYS - 1), e));
                    const VECTOR k = VLOAD(0, part);
                    for (int r = 0; r < ROWS; r++) s[r] += q[r][e] * k;
                }
            }
#else
            float dots[ROWS][LANES];
            for (int i = 0; i < LANES; i++) {
                const int one = min(key + i, KEYS - 1);
                VECTOR dot[ROWS];
                for (int r = 0; r < ROWS; r++) dot[r] = (VECTOR)(0);
                for (int e = 0; e + LANES <= SIZE; e += LANES) {
                    const VECTOR k = JOIN(IN1_LOAD, LANES)(IN1_AT(b, one, e));
                    for (int r = 0; r < ROWS; r++) dot[r] += VLOAD(0, &q[r][e]) * k;
                }
                for (int r = 0; r < ROWS; r++) {
                    dots[r][i] = sum_of(dot[r]);
                    for (int e = SIZE / LANES * LANES; e < SIZE; e++)
                        dots[r][i] += q[r][e] * IN1_LOAD(IN1_AT(b, one, e));
                }
            }
            for (int r = 0; r < ROWS; r++) s[r] = VLOAD(0, dots[r]);
#endif
            for (int r = 0; r < ROWS; r++) {
                const int row = min(first + r, QUERIES - 1);
                if (key + LANES <= (CAUSAL ? min(KEYS, row + 1) : KEYS)) {
                    s[r] = JOIN(MASKED, LANES)(s[r], b, row, key);
                    VSTORE(s[r], 0, &p[r][at]);
                } else {
                    VSTORE(s[r], 0, &p[r][at]);
                    for (int i = 0; i < LANES; i++) {
                        const int one = key + i;
                        if (UNSEEN(one, row))
                            p[r][at + i] = -INFINITY;
                        else
                            p[r][at + i] = MASKED(p[r][at + i], b, row, one);
                    }
                }
            }
        }
        // Weights; what was summed before fades when a larger score has turned up.
        for (int r = 0; r < ROWS; r++) {
            VECTOR best = VLOAD(0, p[r]);
            for (int at = LANES; at < count; at += LANES) best = fmax(best, VLOAD(0, &p[r][at]));
            const float before = highest[r];
            highest[r] = fmax(before, largest_of(best));
            const float shift = highest[r] == -INFINITY ? 0 : highest[r];
            const float fade = exp(before - shift);
            if (fade != 1) {
                total[r] *= fade;
                for (int c = 0; c < CHUNKS; c++) sum[c][r] *= fade;
            }
            for (int at = 0; at < count; at += LANES) {
                const VECTOR weight = exp(VLOAD(0, &p[r][at]) - shift);
                VSTORE(weight, 0, &p[r][at]);
                total[r] += weight;
            }
        }
        for (int c = 0; c < CHUNKS; c++) {
            VECTOR own[ROWS];
            for (int r = 0; r < ROWS; r++) own[r] = sum[c][r];
            if ((c + 1) * LANES <= VALUES) {
                for (int i = 0; i < count; i++) {
                    const VECTOR v = JOIN(IN2_LOAD, LANES)(IN2_AT(b, start + i, c * LANES));
                    for (int r = 0; r < ROWS; r++) own[r] += p[r][i] * v;
                }
            } else {
                for (int i = 0; i < count; i++) {
                    float part[LANES];
                    for (int lane = 0; lane < LANES; lane++)
                        part[lane] = IN2_LOAD(IN2_AT(b, start + i, min(c * LANES + lane, VALUES - 1)));
                    const VECTOR v = VLOAD(0, part);
                    for (int r = 0; r < ROWS; r++) own[r] += p[r][i] * v;
                }
            }
            for (int r = 0; r < ROWS; r++) sum[c][r] = own[r];
        }
    }
    for (int r = 0; r < ROWS; r++) {
        if (first + r >= QUERIES) break;
        const float scale = 1 / sum_of(total[r]);
        for (int c = 0; c < CHUNKS; c++) {
            const VECTOR y = sum[c][r] * scale;
            if ((c + 1) * LANES <= VALUES)
                JOIN(WRITE, LANES)(y, b, first + r, c * LANES);
            else
                JOIN3(WRITE, LANES, _FIRST)(VALUES - c * LANES, y, b, first + r, c * LANES);
        }
    }
}
