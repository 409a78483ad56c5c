// sum_parts: one work-item adds the partial sums of two neighbouring columns and stores them.
// NDRange: {COLUMNS / 2, ROWS}; local size {32, 4}.
// Layouts: partial sums as [part, row, column] of float; result any.   Types: any result.
// Needs: ROWS, COLUMNS, SPLIT (number of parts).
// The parts are added in order, so that the result is the same every time.
KERNEL(sum_parts) {
    const int n = get_global_id(0) * 2, m = get_global_id(1);
    if (n >= COLUMNS || m >= ROWS) return;
    float2 sum = (float2)(0.0f);
    for (int part = 0; part < SPLIT; part++)
        sum += vload2(0, parts + ((size_t)part * ROWS + m) * COLUMNS + n);
    WRITE2(sum, m, n);
}
