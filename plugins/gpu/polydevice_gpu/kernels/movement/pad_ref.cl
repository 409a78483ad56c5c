// pad_ref: one work-item fetches one element of a padded tensor.
// NDRange: {elements of the result}; local size free.
// Layouts: any.   Types: any.
// Needs: COUNT, UNRAVEL(i), SOURCE (coordinates in the input), INSIDE, ELEMENT, BORDER.
// Elements outside of the input are BORDER in mode constant; the other modes map into the input.
KERNEL(pad_ref) {
    const int i = get_global_id(0);
    if (i >= COUNT) return;
    UNRAVEL(i)
    SOURCE
    IN0_C v = BORDER;
    if (INSIDE) v = ELEMENT;
    WRITE(v, i);
}
