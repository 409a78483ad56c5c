// segment_max_ref: one work-item finds the maximum of one column of a segment.
// NDRange: {COLUMNS, SEGMENTS}; local size free.
// Layouts: any.   Types: any.
// Needs: ROWS, COLUMNS, SEGMENTS, EMPTY (the value of a segment without rows).
KERNEL(segment_max_ref) {
    const int column = get_global_id(0), segment = get_global_id(1);
    if (column >= COLUMNS || segment >= SEGMENTS) return;
    // Binary search for the segment's first row.
    int low = 0, high = ROWS;
    while (low < high) {
        const int middle = (low + high) / 2;
        if (IN1_LOAD(IN1_AT(middle)) < segment)
            low = middle + 1;
        else
            high = middle;
    }
    IN0_C best = EMPTY;
    for (int row = low; row < ROWS && IN1_LOAD(IN1_AT(row)) == segment; row++) {
        const IN0_C v = IN0_LOAD(IN0_AT(row, column));
        if (row == low || v > best || v != v) best = v;
        if (best != best) break;
    }
    WRITE(best, segment, column);
}
