// gather_elements_ref: one work-item fetches one element; the index replaces one coordinate.
// NDRange: {elements of the indices}; local size free.
// Layouts: any.   Types: any; integer indices.
// Needs: COUNT, AXIS (size of the axis), UNRAVEL(i), ELEMENT (with `found` as that coordinate).
// An index outside the axis gives 0.
KERNEL(gather_elements_ref) {
    const int i = get_global_id(0);
    if (i >= COUNT) return;
    UNRAVEL(i)
    int found = IN1_LOAD(IN1_AT(i));
    if (found < 0) found += AXIS;
    IN0_C v = 0;
    if (found >= 0 && found < AXIS) v = ELEMENT;
    WRITE(v, i);
}
