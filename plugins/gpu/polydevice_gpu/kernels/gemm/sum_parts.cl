// sum_parts: one work-item adds the partial sums of one element and stores it.
// NDRange: {COLUMNS, ROWS}; local size {32, 4}.
// Layouts: partial sums as [part, row, column] of SUM; result any.   Types: any result.
// Needs: ROWS, COLUMNS, SPLIT (number of parts), SUM (float, int).
// The parts are added in order, so that the result is the same every time.
KERNEL(sum_parts) {
    const int n = get_global_id(0), m = get_global_id(1);
    if (n >= COLUMNS || m >= ROWS) return;
    SUM sum = 0;
    for (int part = 0; part < SPLIT; part++) sum += parts[((size_t)part * ROWS + m) * COLUMNS + n];
    WRITE(sum, m, n);
}
