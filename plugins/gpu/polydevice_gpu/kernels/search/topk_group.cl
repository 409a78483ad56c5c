// topk_group: one work-group finds the K first elements of one row in the order BEFORE.
// NDRange: {LANES, ROWS}; local size {LANES, 1}.
// Layouts: any.   Types: any.
// Needs: COUNT (length of a row), K, BEFORE(a, b), BY_INDEX (store them as they stand in x), KEPT (a
// power of two, at least K), LANES.
// Of equal elements the one with the lower index comes first. What is kept and a strip of the row lie
// in local memory and are sorted together (bitonic); a strip with nothing better is passed over.
#define LENGTH (2 * KEPT)
#define EMPTY 0x7fffffff
#define PRECEDES(a, at_a, b, at_b)                                                               \
    ((at_b) == EMPTY   ? (at_a) != EMPTY                                                         \
     : (at_a) == EMPTY ? 0                                                                       \
                       : BEFORE(a, b) || (!(BEFORE(b, a)) && (at_a) < (at_b)))
#define COMES_FIRST(i, j, by_index)                                                                        \
    (by_index ? places[i] < places[j] : PRECEDES(keys[i], places[i], keys[j], places[j]))

// Sort everything; what was written before is seen by all, as are the results.
#define SORT(by_index)                                                                           \
    for (int size = 2; size <= LENGTH; size *= 2) {                                              \
        for (int apart = size / 2; apart > 0; apart /= 2) {                                      \
            barrier(CLK_LOCAL_MEM_FENCE);                                                        \
            for (int pair = lane; pair < LENGTH / 2; pair += LANES) {                            \
                const int low = 2 * pair - (pair & (apart - 1)), high = low + apart;             \
                const int forwards = (low & size) == 0;                                          \
                if (forwards == (COMES_FIRST(high, low, by_index))) {                            \
                    const IN0_C key = keys[low];                                                 \
                    const int place = places[low];                                               \
                    keys[low] = keys[high];                                                      \
                    places[low] = places[high];                                                  \
                    keys[high] = key;                                                            \
                    places[high] = place;                                                        \
                }                                                                                \
            }                                                                                    \
        }                                                                                        \
    }                                                                                            \
    barrier(CLK_LOCAL_MEM_FENCE);

KERNEL(topk_group) {
    LOCAL_ARRAY(IN0_C, keys, LENGTH, , 16);
    LOCAL_ARRAY(int, places, LENGTH, , 16);
    LOCAL_ARRAY(int, found, 1, , 16);
    const int lane = get_local_id(0), row = get_global_id(1);
    for (int i = lane; i < LENGTH; i += LANES) {
        keys[i] = i < COUNT ? IN0_LOAD(IN0_AT(row, min(i, COUNT - 1))) : 0;
        places[i] = i < COUNT ? i : EMPTY;
    }
    SORT(0)
    for (int start = LENGTH; start < COUNT; start += KEPT) {
        if (lane == 0) *found = 0;
        barrier(CLK_LOCAL_MEM_FENCE);
        const IN0_C last = keys[K - 1];
        for (int i = lane; i < KEPT; i += LANES) {
            const int at = start + i;
            const IN0_C v = IN0_LOAD(IN0_AT(row, min(at, COUNT - 1)));
            keys[KEPT + i] = v;
            places[KEPT + i] = at < COUNT ? at : EMPTY;
            if (at < COUNT && BEFORE(v, last)) *found = 1;
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        if (*found) {
            SORT(0)
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
#if BY_INDEX
    for (int i = lane; i < LENGTH; i += LANES)
        if (i >= K) places[i] = EMPTY;
    SORT(1)
#endif
    for (int n = lane; n < K; n += LANES) {
        WRITE(keys[n], row, n);
        OUT1_STORE(OUT1_AT(row, n), places[n]);
    }
}
