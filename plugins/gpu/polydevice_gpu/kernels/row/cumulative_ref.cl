// cumulative_ref: one work-item adds up, or multiplies, along one line.
// NDRange: {LINES}; local size free.
// Layouts: any.   Types: any; sums in the type that kernels compute in.
// Needs: LINES, LENGTH, FIRST (what a line begins with), JOINED(sum, v), EXCLUSIVE, REVERSE.
KERNEL(cumulative_ref) {
    const int line = get_global_id(0);
    if (line >= LINES) return;
    IN0_C sum = FIRST;
    for (int k = 0; k < LENGTH; k++) {
        const int i = REVERSE ? LENGTH - 1 - k : k;
        const IN0_C v = IN0_LOAD(IN0_AT(line, i));
        const IN0_C before = sum;
        sum = JOINED(sum, v);
        WRITE(EXCLUSIVE ? before : sum, line, i);
    }
}
