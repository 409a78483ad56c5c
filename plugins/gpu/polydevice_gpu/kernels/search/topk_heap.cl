// topk_heap: one work-item keeps the K first elements of one row in the order BEFORE, in a heap whose
// root is the last of them, and sorts the heap.
// NDRange: {ROWS}; local size free.
// Layouts: any.   Types: any.
// Needs: ROWS, COUNT (length of a row), K, BEFORE(a, b), BY_INDEX (store them as they stand in x);
// KEYS and PLACES: memory for K elements a row, ROW_PITCH and HEAP_PITCH apart.
// ALONE says that K is 1, for which there is no heap. Of equal elements the one with the lower index
// comes first. Reads the row once.
#if ALONE
KERNEL(topk_heap) {
    const int row = get_global_id(0);
    if (row >= ROWS) return;
    IN0_C best = IN0_LOAD(IN0_AT(row, 0));
    int place = 0;
    for (int i = 1; i < COUNT; i++) {
        const IN0_C v = IN0_LOAD(IN0_AT(row, i));
        const bool better = BEFORE(v, best);
        best = better ? v : best;
        place = better ? i : place;
    }
    WRITE(best, row, 0);
    OUT1_STORE(OUT1_AT(row, 0), place);
}
#else
#define KEY(n) keys[first + (n) * HEAP_PITCH]
#define PLACE(n) places[first + (n) * HEAP_PITCH]
#define PRECEDES(a, at_a, b, at_b) (BEFORE(a, b) || (!(BEFORE(b, a)) && (at_a) < (at_b)))

// Let an element sink from `root` while a child is to come after it.
static inline void sink(IN0_C key, int place, int root, int count, int by_index, int first,
                        PARAMETERS) {
    for (int child = 2 * root + 1; child < count; child = 2 * root + 1) {
        if (child + 1 < count) {
            const int right = by_index ? PLACE(child) < PLACE(child + 1)
                                       : PRECEDES(KEY(child), PLACE(child), KEY(child + 1),
                                                  PLACE(child + 1));
            child += right;
        }
        const int sinks = by_index ? place < PLACE(child)
                                   : PRECEDES(key, place, KEY(child), PLACE(child));
        if (!sinks) break;
        KEY(root) = KEY(child);
        PLACE(root) = PLACE(child);
        root = child;
    }
    KEY(root) = key;
    PLACE(root) = place;
}

static inline void sort_heap(int by_index, int first, PARAMETERS) {
    for (int n = K - 1; n > 0; n--) {
        const IN0_C key = KEY(n);
        const int place = PLACE(n);
        KEY(n) = KEY(0);
        PLACE(n) = PLACE(0);
        sink(key, place, 0, n, by_index, first, ARGUMENTS);
    }
}

static inline void make_heap(int by_index, int first, PARAMETERS) {
    for (int n = K / 2 - 1; n >= 0; n--) sink(KEY(n), PLACE(n), n, K, by_index, first, ARGUMENTS);
}

KERNEL(topk_heap) {
    const int row = get_global_id(0), first = row * ROW_PITCH;
    if (row >= ROWS) return;
    for (int n = 0; n < K; n++) {
        KEY(n) = IN0_LOAD(IN0_AT(row, n));
        PLACE(n) = n;
    }
    make_heap(0, first, ARGUMENTS);
    IN0_C last = KEY(0);
    for (int i = K; i < COUNT; i++) {
        const IN0_C v = IN0_LOAD(IN0_AT(row, i));
        if (BEFORE(v, last)) {
            sink(v, i, 0, K, 0, first, ARGUMENTS);
            last = KEY(0);
        }
    }
#if BY_INDEX
    make_heap(1, first, ARGUMENTS);
#endif
    sort_heap(BY_INDEX, first, ARGUMENTS);
    for (int n = 0; n < K; n++) {
        WRITE(KEY(n), row, n);
        OUT1_STORE(OUT1_AT(row, n), PLACE(n));
    }
}
#endif
