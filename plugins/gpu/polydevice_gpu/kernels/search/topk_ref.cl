// topk_ref: one work-item finds the K first elements of one row in the order BEFORE.
// NDRange: {ROWS}; local size free.
// Layouts: any.   Types: any.
// Needs: ROWS, COUNT (length of a row), K, BEFORE(a, b), BY_INDEX (store them as they stand in x).
// Of equal elements the one with the lower index comes first. Reads the row K times.
KERNEL(topk_ref) {
    const int row = get_global_id(0);
    if (row >= ROWS) return;
    IN0_C last = 0;
    int last_at = -1;
    for (int k = 0; k < K; k++) {
        IN0_C best = 0;
        int best_at = -1;
        for (int i = 0; i < COUNT; i++) {
            const IN0_C v = IN0_LOAD(IN0_AT(row, i));
            // Only what comes behind the last one found.
            const int behind = k == 0 || BEFORE(last, v) || (!(BEFORE(v, last)) && i > last_at);
            if (behind && (best_at < 0 || BEFORE(v, best))) {
                best = v;
                best_at = i;
            }
        }
        last = best;
        last_at = best_at;
        if (!BY_INDEX) {
            WRITE(best, row, k);
            OUT1_STORE(OUT1_AT(row, k), best_at);
        }
    }
    if (BY_INDEX) {
        int k = 0;
        for (int i = 0; i < COUNT; i++) {
            const IN0_C v = IN0_LOAD(IN0_AT(row, i));
            const int chosen = BEFORE(v, last) || (!(BEFORE(last, v)) && i <= last_at);
            if (chosen) {
                WRITE(v, row, k);
                OUT1_STORE(OUT1_AT(row, k), i);
                k++;
            }
        }
    }
}
