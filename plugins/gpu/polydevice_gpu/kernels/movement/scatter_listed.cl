// scatter_listed: which updates name each place, in their order, and then every element's value.
// NDRange: {LINES} where it goes IN_TURN through the updates of lines, one work-item for each; else
// {PLACES} where it CLEARS counts or BEGINS_LISTS, {NAMED} where it COUNTS updates, FILLS lists in
// the order of arrival or ORDERS them; {COUNT} where it computes elements; local size free.
// Layouts: any.   Types: any; integer indices, negative ones counting from the end.
// Needs: LINE_COORDINATES and ALONG_OF(t), PLACE_OF(i) and NUMBER_OF(i) (see `Scatter`), or what
// scatter_ref needs and LIST (the number of an element's list, or -1).
#include "include/indices.cl"

KERNEL(scatter_listed) {
    const int i = get_global_id(0);
#if IN_TURN
    if (i >= LINES) return;
    LINE_COORDINATES
    __global int* const first = begins + i * WIDE;
    __global int* const last = ends + i * WIDE;
    for (int p = 0; p < WIDE; p++) last[p] = 0;
    for (int t = 0; t < UPDATES; t++) {
        ALONG_OF(t)
        if (along >= 0) last[along]++;
    }
    int begin = i * UPDATES;
    for (int p = 0; p < WIDE; p++) {
        const int count = last[p];
        first[p] = last[p] = begin;
        begin += count;
    }
    for (int t = 0; t < UPDATES; t++) {
        ALONG_OF(t)
        if (along >= 0) order[last[along]++] = t;
    }
#elif CLEARS
    if (i < PLACES) ends[i] = 0;
    if (i == 0) total[0] = 0;
#elif BEGINS_LISTS
    if (i >= PLACES) return;
    const int count = ends[i];
    const int begin = count > 0 ? atomic_add(total, count) : 0;
    begins[i] = begin;
    ends[i] = begin + count;
#elif COUNTS || FILLS || ORDERS
    if (i >= NAMED) return;
    MARK_COORDINATES
    const int place = PLACE_OF(i);
    if (place < 0) return;
#if COUNTS
    slots[i] = atomic_inc(ends + place);
#elif FILLS
    arrived[begins[place] + slots[i]] = NUMBER_OF(i);
#else
    const int number = NUMBER_OF(i), begin = begins[place], end = ends[place];
    int before = 0;
    for (int s = begin; s < end; s++) before += arrived[s] < number;
    order[begin + before] = number;
#endif
#else
    if (i >= COUNT) return;
    COORDINATES
    IN0_C v = OLD;
    const int list = LIST;
    const int begin = list < 0 ? 0 : begins[list], end = list < 0 ? 0 : ends[list];
    for (int s = begin; s < end; s++) {
        const IN0_C u = UPDATE(order[s]);
        v = !USE_OLD && s == begin ? u : (IN0_C)COMBINE(v, u);
    }
    // Integer means are rounded down.
    if (MEAN && end > begin) v = MEAN_OF(v, (IN0_C)(end - begin + USE_OLD));
    STORE(v);
#endif
}
