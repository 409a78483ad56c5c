// gather_ref: one work-item fetches WIDTH elements of a row; an index chooses its place along one axis.
// NDRange: {axes behind / WIDTH, indices, batch * OUTER}; local size free.
// Layouts: any; rows side by side where WIDTH is above 1.   Types: any; integer indices.
// Needs: OUTER (elements of the axes between batch and axis), AXIS (its size), NEGATIVE, WIDTH.
// An index outside the axis gives 0; with NEGATIVE one below 0 counts from the end.
#define JOIN2(a, b) a##b
#define JOIN(a, b) JOIN2(a, b)
#if WIDTH > 1
#define VECTOR JOIN(IN0_C, WIDTH)
#define LOAD JOIN(IN0_LOAD, WIDTH)
#define STORE JOIN(WRITE, WIDTH)
#else
#define VECTOR IN0_C
#define LOAD IN0_LOAD
#define STORE WRITE
#endif

KERNEL(gather_ref) {
    const int behind = get_global_id(0) * WIDTH, place = get_global_id(1);
    const int before = get_global_id(2) % OUTER, b = get_global_id(2) / OUTER;
    long found = IN1_LOAD(IN1_AT(b, place));
    if (NEGATIVE && found < 0) found += AXIS;
    VECTOR v = (VECTOR)(0);
    if (found >= 0 && found < AXIS) v = LOAD(IN0_AT(b, before, (int)found, behind));
    STORE(v, b, before, place, behind);
}
