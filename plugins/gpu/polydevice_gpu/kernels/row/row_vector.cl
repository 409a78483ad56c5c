// row_vector: a work-item gathers a row in vectors and stores what becomes of its elements.
// NDRange: {ROWS}.
// Layouts: the terms of a row side by side.   Types: half, float; computed in float.
// Needs: ENTRY, WIDTH (8 or 16), ROWS, COUNT (terms of a row); START, COMBINE(a, v) and
// JOIN_FIRST(a, v) of the first sweep; SWEEPS, and for a second one CENTRE(a, n) and TERM(v);
// SCALE(a, b) and RESULT(v). All but CENTRE and SCALE are of vectors, too.
#define JOIN2(a, b) a##b
#define JOIN(a, b) JOIN2(a, b)
#define VECTOR JOIN(float, WIDTH)
#define NUMBERS JOIN(int, WIDTH)
#define READ(i) JOIN(IN0_LOAD, WIDTH)(IN0_AT(row, i))
#define PUT JOIN(vstore, WIDTH)
#define PLUS(a, v) ((a) + (v))
#define ADD_TERM(a, v) ((a) + TERM(v))
// A lane sums CHUNK / WIDTH terms: adding 200,000 floats one by one would lose two digits.
#define CHUNK 4096
// What is left of a row is the end of its last vector; rows that have none go one by one.
#define GATHER(total, START_OF, ADD, JOIN_LANES)                                                  \
    for (int from = 0; from < COUNT; from += CHUNK) {                                             \
        const int to = min(from + CHUNK, COUNT);                                                  \
        VECTOR own = (VECTOR)(START_OF);                                                          \
        int i = from;                                                                             \
        for (; i + WIDTH <= to; i += WIDTH) {                                                     \
            const VECTOR v = READ(i);                                                             \
            own = ADD(own, v);                                                                    \
        }                                                                                         \
        if (i < to && COUNT >= WIDTH) {                                                           \
            const VECTOR v = READ(to - WIDTH), with = ADD(own, v);                                \
            own = select(own, with, lane >= WIDTH - (to - i));                                    \
            i = to;                                                                               \
        }                                                                                         \
        float lanes[WIDTH];                                                                       \
        PUT(own, 0, lanes);                                                                       \
        for (; i < to; i++) {                                                                     \
            const float v = IN0_LOAD(IN0_AT(row, i));                                             \
            lanes[0] = ADD(lanes[0], v);                                                          \
        }                                                                                         \
        _Pragma("unroll") for (int w = 0; w < WIDTH; w++) total = JOIN_LANES(total, lanes[w]);    \
    }

KERNEL(ENTRY) {
    const int row = get_global_id(0);
    if (row >= ROWS) return;
    int numbers[WIDTH];
    for (int w = 0; w < WIDTH; w++) numbers[w] = w;
    const NUMBERS lane = JOIN(vload, WIDTH)(0, numbers);
    float first = START, second = 0;
    GATHER(first, START, COMBINE, JOIN_FIRST)
    const float centre = CENTRE(first, COUNT);
#if SWEEPS > 1
    GATHER(second, 0, ADD_TERM, PLUS)
#endif
    const float scale = SCALE(first, second);
    // The result may be where the row was: what is left is read first.
    const int whole = COUNT / WIDTH * WIDTH;
    VECTOR last = (VECTOR)(0);
    if (whole < COUNT && COUNT >= WIDTH) last = READ(COUNT - WIDTH);
    for (int i = 0; i < whole; i += WIDTH) {
        const VECTOR v = READ(i);
        JOIN(WRITE, WIDTH)((RESULT(v)), row, i);
    }
    if (whole == COUNT) return;
    float left[WIDTH];
    if (COUNT < WIDTH) {
        for (int i = 0; i < COUNT; i++) left[WIDTH - COUNT + i] = IN0_LOAD(IN0_AT(row, i));
        last = JOIN(vload, WIDTH)(0, left);
    }
    PUT(RESULT(last), 0, left);
    for (int i = whole; i < COUNT; i++) WRITE(left[WIDTH - COUNT + i], row, i);
}
