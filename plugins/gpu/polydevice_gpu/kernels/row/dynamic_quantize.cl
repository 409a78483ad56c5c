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
// NaN compares as false and stays out, as with fmin and fmax, which are three instructions each.
#define WIDEN(lows, highs, v) lows = v < lows ? v : lows, highs = v > highs ? v : highs
#if defined(__FMA__) || defined(FP_FAST_FMAF)
// v / scale, rounded as a division is, in a third of its time: two steps of what is left over, by
// the nearest inverse, leave the nearest quotient (Markstein). Steps beyond what they are right for
// are divided by.
#define IS_TAME(scale) ((scale) > 0x1p-96f && (scale) < 0x1p96f)
static inline FLOATS quotient(const FLOATS v, const float scale, const float inverse) {
    if (!IS_TAME(scale)) return v / scale;
    const FLOATS first = v * inverse;
    const FLOATS second = fma(fma(-first, (FLOATS)(scale), v), (FLOATS)(inverse), first);
    return fma(fma(-second, (FLOATS)(scale), v), (FLOATS)(inverse), second);
}
#else
#define quotient(v, scale, inverse) ((v) / (scale))
#endif
#endif

KERNEL(dynamic_quantize) {
    const int part = get_global_id(0);
    const int first = part * LENGTH, end = first + min(LENGTH, COUNT - first);
    float low = 0, high = 0;
    int i = first;
#if FINDS
#if WIDTH > 1
    FLOATS lows = (FLOATS)(0), highs = lows, more_lows = lows, more_highs = lows;
    for (; i + 2 * WIDTH <= end; i += 2 * WIDTH) {  // two chains, so that none is waited for
        const FLOATS v = LOAD(IN0_AT(i)), w = LOAD(IN0_AT(i + WIDTH));
        WIDEN(lows, highs, v);
        WIDEN(more_lows, more_highs, w);
    }
    if (i + WIDTH <= end) {
        const FLOATS v = LOAD(IN0_AT(i));
        WIDEN(lows, highs, v);
        i += WIDTH;
    }
    lows = fmin(lows, more_lows);
    highs = fmax(highs, more_highs);
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
    const float inverse = 1.0f / scale;
    const FLOATS least = (FLOATS)(-zero), most = (FLOATS)(255.0f - zero);
    for (; i + WIDTH <= end; i += WIDTH) {
        const FLOATS v = quotient(LOAD(IN0_AT(i)), scale, inverse);
        const FLOATS above = v > least ? v : least;  // NaN becomes the least
        const FLOATS whole = (above < most ? above : most) + 0x1.8p23f;
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
