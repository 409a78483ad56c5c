// gather_tree_ref: one work-item traces one beam of a beam search from its last step to the first.
// NDRange: {BEAMS, batch}; local size free.
// Layouts: any.   Types: any.
// Needs: STEPS, BEAMS.
// Twice over the steps: the first end token on the way forwards is known only at the end.
KERNEL(gather_tree_ref) {
    const int beam = get_global_id(0), b = get_global_id(1);
    const IN0_C end = (IN0_C)IN3_LOAD(IN3_AT(0));
    const int length = clamp((int)IN2_LOAD(IN2_AT(b)), 0, (int)STEPS);
    int parent = beam, first_end = STEPS;
    for (int step = length - 1; step >= 0; step--) {
        if (parent < 0 || parent >= BEAMS) {
            first_end = step;  // what is not reached counts as ended
            parent = -1;
            continue;
        }
        if (IN0_LOAD(IN0_AT(step, b, parent)) == end) first_end = step;
        parent = (int)IN1_LOAD(IN1_AT(step, b, parent));
    }
    parent = beam;
    for (int step = STEPS - 1; step >= 0; step--) {
        IN0_C token = end;
        if (step < length && parent >= 0 && parent < BEAMS) {
            if (step < first_end) token = IN0_LOAD(IN0_AT(step, b, parent));
            parent = (int)IN1_LOAD(IN1_AT(step, b, parent));
        }
        WRITE(token, step, b, beam);
    }
}
