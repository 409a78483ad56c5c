// dynamic_quantize: work-items walk PARTS parts of LENGTH elements each; they find the range of all
// elements and 0 (FINDS), and make bytes by a scale and a zero point that fit it (ROUNDS), or whole
// numbers that are these bytes less the zero point (FLOATS_OUT), or only these two numbers. Where all parts are found before (KEEPS), their ranges are in RANGES.
// NDRange: {PARTS}, which is 1 where nothing is kept; {1} where only the numbers are made.
// Layouts: any.   Types: half, float; bytes.
// Needs: COUNT (elements), WIDTH (above 1 elements lie side by side), TO_BYTES(x, n), PUT_SCALE(v),
// PUT_ZERO(v), FILLS (how many of OUT3 are the zero point, too).
#define JOIN2(a, b) a##b
#define JOIN(a, b) JOIN2(a, b)
#if WIDTH > 1
#define FLOATS JOIN(float, WIDTH)
#define PUT JOIN(vstore, WIDTH)
#define STORE JOIN(WRITE, WIDTH)
#define LOAD JOIN(IN0_LOAD, WIDTH)
#endif

KERNEL(dynamic_quantize) {
    const int part = get_global_id(0);
    const int first = part * LENGTH, end = first + min(LENGTH, COUNT - first);
    float low = 0, high = 0;
    int i = first;
#if FINDS
#if WIDTH > 1
    FLOATS lows = (FLOATS)(0), highs = (FLOATS)(0);
    for (; i + WIDTH <= end; i += WIDTH) {
        const FLOATS v = LOAD(IN0_AT(i));
        lows = fmin(lows, v);
        highs = fmax(highs, v);
    }
    float each[WIDTH];
    PUT(lows, 0, each);
    for (int w = 0; w < WIDTH; w++) low = fmin(low, each[w]);
    PUT(highs, 0, each);
    for (int w = 0; w < WIDTH; w++) high = fmax(high, each[w]);
#endif
    for (; i < end; i++) {
        const float v = IN0_LOAD(IN0_AT(i));
        low = fmin(low, v);
        high = fmax(high, v);
    }
#if KEEPS
    ranges[2 * part] = low;
    ranges[2 * part + 1] = high;
#endif
#else
    for (int p = 0; p < PARTS; p++) {
        low = fmin(low, ranges[2 * p]);
        high = fmax(high, ranges[2 * p + 1]);
    }
#endif
#if !KEEPS
    const float step = (high - low) / 255.0f, scale = step == 0.0f ? 1.0f : step;
    const float zero = rint(clamp(0.0f - low / scale, 0.0f, 255.0f));
    if (part == 0) {
        PUT_SCALE(scale);
        PUT_ZERO((uchar)zero);
#if FILLS
        for (int f = 0; f < FILLS; f++) OUT3_STORE(OUT3_AT(f), (uchar)zero);
#endif
    }
#endif
#if ROUNDS
    // Adding 1.5 * 2^23 leaves the nearest whole number in the lower bits.
#if !FLOATS_OUT
    const int more = (int)zero - 0x4B400000;
#endif
    i = first;
#if WIDTH > 1
    for (; i + WIDTH <= end; i += WIDTH) {
        const FLOATS v = LOAD(IN0_AT(i)) / scale;
        const FLOATS whole = fmin(fmax(v, (FLOATS)(-zero)), (FLOATS)(255.0f - zero)) + 0x1.8p23f;
#if FLOATS_OUT
        STORE(whole - 0x1.8p23f, i);
#else
        STORE(TO_BYTES(whole, more), i);
#endif
    }
#endif
    for (; i < end; i++) {
        const float v = IN0_LOAD(IN0_AT(i)) / scale;
        const float whole = fmin(fmax(v, -zero), 255.0f - zero) + 0x1.8p23f;
#if FLOATS_OUT
        WRITE(whole - 0x1.8p23f, i);
#else
        WRITE((uchar)(as_int(whole) + more), i);
#endif
    }
#endif
}
