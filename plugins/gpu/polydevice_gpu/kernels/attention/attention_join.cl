// attention_join: one work-item joins one element of an attention from parts of the keys.
// NDRange: {VALUES, QUERIES, batches}; local size free.
// Layouts: any result.   Types: half, float; sums in float.
// Needs: VALUES, QUERIES, BATCHES, SPLIT; PARTS as [part, batch, query, (maximum, total, values…)].
KERNEL(attention_join) {
    const int c = get_global_id(0), row = get_global_id(1), b = get_global_id(2);
    if (c >= VALUES) return;
    const size_t pitch = (size_t)BATCHES * QUERIES * (VALUES + 2);
    __global const float* own = parts + ((size_t)b * QUERIES + row) * (VALUES + 2);
    float highest = -INFINITY, total = 0, sum = 0;
    for (int part = 0; part < SPLIT; part++) highest = fmax(highest, own[part * pitch]);
    const float shift = highest == -INFINITY ? 0 : highest;
    for (int part = 0; part < SPLIT; part++) {
        const float weight = exp(own[part * pitch] - shift);
        total += weight * own[part * pitch + 1];
        sum += weight * own[part * pitch + 2 + c];
    }
    WRITE(sum / total, b, row, c);
}
