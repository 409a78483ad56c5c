// gather_ref: one work-item fetches one element; an index chooses its place along one axis.
// NDRange: {axes behind, indices, batch * OUTER}; local size free.
// Layouts: any.   Types: any; integer indices.
// Needs: OUTER (elements of the axes between batch and axis), AXIS (its size), NEGATIVE.
// An index outside the axis gives 0; with NEGATIVE one below 0 counts from the end.
KERNEL(gather_ref) {
    const int behind = get_global_id(0), place = get_global_id(1);
    const int before = get_global_id(2) % OUTER, b = get_global_id(2) / OUTER;
    long found = IN1_LOAD(IN1_AT(b, place));
    if (NEGATIVE && found < 0) found += AXIS;
    IN0_C v = 0;
    if (found >= 0 && found < AXIS) v = IN0_LOAD(IN0_AT(b, before, (int)found, behind));
    WRITE(v, b, before, place, behind);
}
