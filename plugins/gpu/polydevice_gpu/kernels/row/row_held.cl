// row_held: a warp gathers a row whose terms it keeps in registers, so that they are read once.
// NDRange: {LANES, ceil(ROWS / HEIGHT) * HEIGHT}; local size {LANES, HEIGHT}.
// Layouts: the terms of a row side by side, in fours.   Types: half, float.
// Needs: LANES (a warp's), ROWS, COUNT (terms of a row, a multiple of 4), HELD (fours of a lane);
// START, COMBINE(a, v), JOIN_FIRST(a, v), SWEEPS, CENTRE(a, n), TERM(v), SCALE(a, b) and RESULT(v)
// as row.cl has them.
#define PLUS(a, v) ((a) + (v))
// The value of the lane whose number differs in one bit.
#define OVER_LANES(a, JOIN)                                                                   \
    _Pragma("unroll") for (int bit = LANES / 2; bit > 0; bit /= 2) {                          \
        float v;                                                                              \
        asm volatile("shfl.sync.bfly.b32 %0, %1, %2, 31, 0xffffffff;"                         \
                     : "=f"(v) : "f"(a), "r"(bit));                                           \
        a = JOIN(a, v);                                                                       \
    }
// Do something with every four that this lane holds, the first at term i.
#define FOURS(action)                                                                         \
    _Pragma("unroll") for (int h = 0; h < HELD; h++) {                                        \
        const int i = (h * LANES + lane) * 4;                                                 \
        if (i < COUNT) { action }                                                             \
    }
#define TERMS(action)                                                                         \
    FOURS(_Pragma("unroll") for (int w = 0; w < 4; w++) {                                     \
        const float v = held[h][w];                                                           \
        action;                                                                               \
    })

KERNEL(ENTRY) {
    const int lane = get_local_id(0), place = get_global_id(1), row = min(place, ROWS - 1);
    float held[HELD][4];
    FOURS(vstore4(IN0_LOAD4(IN0_AT(row, i)), 0, held[h]);)
    float first = START;
    TERMS(first = COMBINE(first, v))
    OVER_LANES(first, JOIN_FIRST)
    const float centre = CENTRE(first, COUNT);
    float second = 0;
#if SWEEPS > 1
    TERMS(second = second + TERM(v))
    OVER_LANES(second, PLUS)
#endif
    if (place >= ROWS) return;
    const float scale = SCALE(first, second);
    FOURS({
        _Pragma("unroll") for (int w = 0; w < 4; w++) {
            const float v = held[h][w];
            held[h][w] = RESULT(v);
        }
        WRITE4(vload4(0, held[h]), row, i);
    })
}
