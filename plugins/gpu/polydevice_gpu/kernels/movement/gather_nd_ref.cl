// gather_nd_ref: one work-item fetches one element; a tuple of indices chooses a slice.
// NDRange: {axes behind, tuples, batch}; local size free.
// Layouts: any.   Types: any; integer indices.
// Needs: FIND (declares the coordinates f0, f1 …), INSIDE, ELEMENT.
// Indices below 0 count from the end; those outside the axes give 0.
KERNEL(gather_nd_ref) {
    const int r = get_global_id(0), t = get_global_id(1), b = get_global_id(2);
    FIND
    IN0_C v = 0;
    if (INSIDE) v = ELEMENT;
    WRITE(v, b, t, r);
}
