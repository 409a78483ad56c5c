// row: a work-group gathers one part of a row, or of TOGETHER neighbouring rows. What is the
// whole row is finished at once; of parts row_join makes the whole.
// NDRange: see include/row.cl.
// Layouts: any.   Types: any; computed in SUM_T.
// Needs: see include/row.cl; START, COMBINE(a, v) and JOIN_FIRST(a, v) of the first sweep;
// SWEEPS, and for a second one CENTRE(a, n), which the first sweep of n terms gives, and
// TERM(v), which each term adds about `centre`; IN_PARTS; if so PARTS and buffers FIRSTS and
// SECONDS.
// Neighbouring lanes read neighbouring terms, or neighbouring rows.
#include "include/row.cl"
// A sum takes CHUNK terms: adding 200,000 floats one by one would lose two digits.
#define CHUNK 256
#define GATHER(total, START_OF, ADD, JOIN)                                                        \
    for (int left = end - begin; left > 0; left -= CHUNK * WIDTH * LANES_OF_ROW) {                \
        const int from = end - left, to = from + min(CHUNK * WIDTH * LANES_OF_ROW, left);         \
        SUM_T own[WIDTH];                                                                         \
        _Pragma("unroll") for (int w = 0; w < WIDTH; w++) own[w] = START_OF;                      \
        int i = from + lane;                                                                      \
        for (; i < to - (WIDTH - 1) * LANES_OF_ROW; i += WIDTH * LANES_OF_ROW) {                  \
            _Pragma("unroll") for (int w = 0; w < WIDTH; w++) {                                   \
                const SUM_T v = IN0_LOAD(IN0_AT(row, i + w * LANES_OF_ROW));                      \
                own[w] = ADD(own[w], v);                                                          \
            }                                                                                     \
        }                                                                                         \
        for (; i < to; i += LANES_OF_ROW) {                                                       \
            const SUM_T v = IN0_LOAD(IN0_AT(row, i));                                             \
            own[0] = ADD(own[0], v);                                                              \
        }                                                                                         \
        _Pragma("unroll") for (int w = 0; w < WIDTH; w++) total = JOIN(total, own[w]);            \
    }
#define ADD_TERM(a, v) ((a) + TERM(v))

KERNEL(ENTRY) {
    DECLARE_ROW
    SUM_T first = START, second = 0;
    GATHER(first, START, COMBINE, JOIN_FIRST)
    OVER_LANES(first, JOIN_FIRST)
#if SWEEPS > 1 || !IN_PARTS
    const SUM_T centre = CENTRE(first, end - begin);
#endif
#if SWEEPS > 1
    GATHER(second, 0, ADD_TERM, PLUS)
    OVER_LANES(second, PLUS)
#endif
#if IN_PARTS
    if (stores && lane == 0) {
        firsts[part * ROWS + row] = first;
#if SWEEPS > 1
        seconds[part * ROWS + row] = second;
#endif
    }
#else
    STORE_ROW(first, second)
#endif
}
