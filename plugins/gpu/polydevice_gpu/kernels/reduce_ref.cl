// reduce_ref: one work-item reduces one row (all elements that share the kept coordinates).
// NDRange: {rows}; local size free.
// Layouts: any.   Types: any; computed in the compute type of the input.
// Needs: ROWS, COUNT (terms of a row), START, COMBINE(a, v), JOIN_PARTS(a, v), FINISH(a).
// Sums CHUNK terms at a time: adding 200,000 floats one by one would lose two digits.
#define CHUNK 256
KERNEL(reduce_ref) {
    const int row = get_global_id(0);
    if (row >= ROWS) return;
    IN0_C a = START;
    for (int start = 0; start < COUNT; start += CHUNK) {
        IN0_C part = START;
        for (int i = start; i < min(start + CHUNK, COUNT); i++) {
            const IN0_C v = IN0_LOAD(IN0_AT(row, i));
            part = COMBINE(part, v);
        }
        a = JOIN_PARTS(a, part);
    }
    WRITE(FINISH(a), row);
}
