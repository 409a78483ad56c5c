// scatter_marked: the last update that names each place, then every element's value.
// NDRange: {PLACES} where it CLEARS, {MARKS} where it MARKS, {COUNT} where it does neither; local size free.
// Layouts: any.   Types: any; integer indices, negative ones counting from the end.
// Needs: PLACE_OF(i) (a place, or -1 outside), NUMBER_OF(i), or COORDINATES (declares them from i),
// PLACE, OLD, UPDATE(t), STORE(v). Of several updates of a place the one of the highest number stays.
#include "include/indices.cl"

KERNEL(scatter_marked) {
    const int i = get_global_id(0);
#if CLEARS
    if (i < PLACES) marks[i] = -1;
#elif MARKS
    if (i >= NAMED) return;
    MARK_COORDINATES
    const int place = PLACE_OF(i);
    if (place >= 0) atomic_max(marks + place, NUMBER_OF(i));
#else
    if (i >= COUNT) return;
    COORDINATES
    const int t = marks[PLACE];
    IN0_C v = OLD;
    if (t >= 0) v = UPDATE(t);
    STORE(v);
#endif
}
