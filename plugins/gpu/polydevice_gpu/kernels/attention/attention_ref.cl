// attention_ref: one work-item computes one element of softmax(scale * q·k + mask)·v.
// NDRange: {VALUES, QUERIES, batches}; local size free.
// Layouts: any.   Types: half, float; sums in float.
// Needs: SIZE (of a head), KEYS, SCALE, MASKED(score, b, query, key), CAUSAL, HAS_SINK, SINK(b, query).
// Computes every score once per element of the result; meant for correctness.
KERNEL(attention_ref) {
    const int c = get_global_id(0), row = get_global_id(1), b = get_global_id(2);
    float highest = -INFINITY, total = 0, sum = 0;
#if HAS_SINK
    highest = SINK(b, row), total = 1;
#endif
    for (int key = 0; key < (CAUSAL ? min(KEYS, row + 1) : KEYS); key++) {
        float score = 0;
        for (int e = 0; e < SIZE; e++)
            score += IN0_LOAD(IN0_AT(b, row, e)) * IN1_LOAD(IN1_AT(b, key, e));
        score = MASKED(score * SCALE, b, row, key);
        const float before = highest;
        highest = fmax(highest, score);
        const float shift = highest == -INFINITY ? 0 : highest;
        const float fade = exp(before - shift), weight = exp(score - shift);
        total = total * fade + weight;
        sum = sum * fade + weight * IN2_LOAD(IN2_AT(b, key, c));
    }
    WRITE(sum / total, b, row, c);
}
