// row_steps_ref: a work-item gathers sums of a row, one after the other, and stores its elements.
// NDRange: {ROWS}.
// Layouts: any.   Types: floats and bytes; computed in float. WIDTH > 1 needs results side by side.
// Needs: ROWS, COUNT (terms of a row), WIDTH (1, 4, 8, 16; at most COUNT); GATHERINGS, a GATHER for
// each sum, and of each TERM<n>(i), TERMS<n>(i), MADE<n>(sum); RESULT(i), RESULTS(i), RESULT_T.
#define JOIN2(a, b) a##b
#define JOIN(a, b) JOIN2(a, b)
#if WIDTH > 1
#define VECTOR JOIN(float, WIDTH)
// What is left of a row is the end of its last vector.
#define SUM_UP(n)                                                                                 \
    VECTOR sums = (VECTOR)(0);                                                                    \
    for (int i = 0; i + WIDTH <= COUNT; i += WIDTH) sums += TERMS##n(i);                          \
    if (COUNT % WIDTH) {                                                                          \
        const int i = COUNT - WIDTH;                                                              \
        sums += select((VECTOR)(0), TERMS##n(i), lane >= WIDTH - COUNT % WIDTH);                  \
    }                                                                                             \
    float lanes[WIDTH];                                                                           \
    JOIN(vstore, WIDTH)(sums, 0, lanes);                                                          \
    _Pragma("unroll") for (int w = 0; w < WIDTH; w++) sum += lanes[w];
#else
#define SUM_UP(n)                                                                                 \
    for (int i = 0; i < COUNT; i++) sum += TERM##n(i);
#endif
#define GATHER(n, kind, divisor)                                                                  \
    kind row##n;                                                                                  \
    {                                                                                             \
        float sum = 0;                                                                            \
        SUM_UP(n)                                                                                 \
        sum /= divisor;                                                                           \
        row##n = MADE##n(sum);                                                                    \
    }

KERNEL(row_steps_ref) {
    const int row = get_global_id(0);
    if (row >= ROWS) return;
#if WIDTH > 1
    int numbers[WIDTH];
    for (int w = 0; w < WIDTH; w++) numbers[w] = w;
    const JOIN(int, WIDTH) lane = JOIN(vload, WIDTH)(0, numbers);
    GATHERINGS
    for (int i = 0; i + WIDTH <= COUNT; i += WIDTH) {
        const RESULT_T made = RESULTS(i);
        JOIN(OUT0_STORE, WIDTH)(OUT0_AT(row, i), made);
    }
    if (COUNT % WIDTH) {
        const int i = COUNT - WIDTH;
        const RESULT_T made = RESULTS(i);
        JOIN(OUT0_STORE, WIDTH)(OUT0_AT(row, i), made);
    }
#else
    GATHERINGS
    for (int i = 0; i < COUNT; i++) OUT0_STORE(OUT0_AT(row, i), RESULT(i));
#endif
}
