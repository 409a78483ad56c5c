// reduce_ref: one work-item reduces one row (all elements that share the kept coordinates).
// NDRange: {rows}; local size free.
// Layouts: any.   Types: any; computed in the compute type of the input.
// Needs: ROWS, COUNT (terms of a row), START, COMBINE(a, v), FINISH(a).
// Reads COUNT elements one after the other.
KERNEL(reduce_ref) {
    const int row = get_global_id(0);
    if (row >= ROWS) return;
    IN0_C a = START;
    for (int i = 0; i < COUNT; i++) {
        const IN0_C v = IN0_LOAD(IN0_AT(row, i));
        a = COMBINE(a, v);
    }
    WRITE(FINISH(a), row);
}
