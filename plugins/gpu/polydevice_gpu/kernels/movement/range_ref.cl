// range_ref: one work-item writes one number of a range.
// NDRange: {elements of the result}; local size free.
// Layouts: any.   Types: any.
// Needs: COUNT, START, STEP (whole numbers).
KERNEL(range_ref) {
    const int i = get_global_id(0);
    if (i >= COUNT) return;
    WRITE(START + i * STEP, i);
}
