// dynamic_range_ref: one work-item finds the range of all elements and 0, in 255 steps.
// NDRange: {1}.
// Layouts: any.   Types: half, float.
// Needs: COUNT (elements), WIDTH (above 1 elements lie side by side).
#define JOIN2(a, b) a##b
#define JOIN(a, b) JOIN2(a, b)
#if WIDTH > 1
#define VECTOR JOIN(float, WIDTH)
#define PUT JOIN(vstore, WIDTH)
#endif

KERNEL(dynamic_range_ref) {
    float low = 0, high = 0;
    int i = 0;
#if WIDTH > 1
    VECTOR lows = (VECTOR)(0), highs = (VECTOR)(0);
    for (; i + WIDTH <= COUNT; i += WIDTH) {
        const VECTOR v = JOIN(IN0_LOAD, WIDTH)(IN0_AT(i));
        lows = fmin(lows, v);
        highs = fmax(highs, v);
    }
    float each[WIDTH];
    PUT(lows, 0, each);
    for (int w = 0; w < WIDTH; w++) low = fmin(low, each[w]);
    PUT(highs, 0, each);
    for (int w = 0; w < WIDTH; w++) high = fmax(high, each[w]);
#endif
    for (; i < COUNT; i++) {
        const float v = IN0_LOAD(IN0_AT(i));
        low = fmin(low, v);
        high = fmax(high, v);
    }
    const float step = (high - low) / 255.0f, scale = step == 0.0f ? 1.0f : step;
    OUT1_STORE(OUT1_AT(0), (uchar)rint(clamp(0.0f - low / scale, 0.0f, 255.0f)));
    WRITE(scale, 0);
}
