// resample_places: where results of an interpolation lie among elements, as tables of resample_ref
// and resample_vector.
// NDRange: {OUT_0 + OUT_1 + OUT_2}
// Needs: PLACED (1: linear; 2: nearest; 3: nearest, in floats; 4: cubic), PLACES (0: by centres; 1: an
// only one is the first; 2: by corners; 3: both ends together; 4: half an element behind corners),
// BY_SCALES, STAYS(size, results) (whether results are the elements), NEAREST (0: the one before; 1: behind; 2: towards zero, or behind where
// the axis shrinks; 3: the nearest, or before; 4: the nearest, or behind), CUBE, TAPS; OUT_n (results
// of an axis, 0 of one that there is not), PLACE_n(o), INDEX_n(p, t) and WEIGHT_n(p, t); PLACE_T.
#if PLACED == 1
// The element before result o, and how far behind it that lies.
static inline float2 linear_place(int o, int size, int results, float scale) {
    if (STAYS(size, results)) return (float2)(o, 0.0f);
    if (PLACES == 1 && results == 1) return (float2)(0.0f, 0.0f);
#if BY_SCALES
    const float place = PLACES == 2   ? o / scale
                        : PLACES == 4 ? (o + 0.5f) / scale
                                      : (o + 0.5f) / scale - 0.5f;
    const float within = clamp(place, 0.0f, (float)(size - 1)), low = floor(within);
    return (float2)(low, within - low);
#else
    // In whole numbers, so that no place is rounded to the next element.
    const int above = PLACES == 2   ? o * size
                      : PLACES == 3 ? o * (size - 1)
                      : PLACES == 4 ? (2 * o + 1) * size
                                    : (2 * o + 1) * size - results;
    const int below = PLACES == 2 ? results : PLACES == 3 ? max(results - 1, 1) : 2 * results;
    if (above <= 0) return (float2)(0.0f, 0.0f);
    const int low = above / below;
    if (low >= size - 1) return (float2)(size - 1, 0.0f);
    return (float2)(low, (float)(above - low * below) / below);
#endif
}
#elif PLACED == 3
// The element that result o shows, as tables in f32 tell it.
static inline int float_place(int o, int size, int results, float scale, int shrinks) {
    const float place = STAYS(size, results)          ? o
                        : PLACES == 1 && results == 1 ? 0.0f
                        : PLACES == 2                 ? o / scale
                        : PLACES == 3 ? o * (float)(size - 1) / (float)max(results - 1, 1)
                        : PLACES == 4 ? (o + 0.5f) / scale
                                      : (o + 0.5f) / scale - 0.5f;
    const float low = floor(place);
    const float taken = NEAREST == 0   ? low
                        : NEAREST == 1 ? ceil(place)
                        : NEAREST == 2 ? (shrinks ? ceil(place) : trunc(place))
                        : NEAREST == 3 && place == low + 0.5f ? low
                                                              : floor(place + 0.5f);
    return clamp((int)taken, 0, size - 1);
}
#else
// The place of result o as a quotient, down / up being the scale: whole, rest and divisor.
static inline int3 quotient(int o, int size, int results, int up, int down) {
    if (STAYS(size, results)) return (int3)(o, 0, 1);
    if (PLACES == 1 && results == 1) return (int3)(0, 0, 1);
    const int above = PLACES == 2   ? o * up
                      : PLACES == 3 ? o * (size - 1)
                      : PLACES == 4 ? (2 * o + 1) * up
                                    : (2 * o + 1) * up - down;
    const int below = PLACES == 2 ? down : PLACES == 3 ? max(results - 1, 1) : 2 * down;
    const int low = above >= 0 ? above / below : -((below - 1 - above) / below);
    return (int3)(low, above - low * below, below);
}
#if PLACED == 2
static inline int nearest_place(int o, int size, int results, int up, int down) {
    const int3 place = quotient(o, size, results, up, down);
    const int is_behind = NEAREST == 1   ? place.y > 0
                          : NEAREST == 2 ? place.y > 0 && (down < up || place.x < 0)
                          : NEAREST == 3 ? 2 * place.y > place.z
                          : NEAREST == 4 ? 2 * place.y >= place.z
                                         : 0;
    return clamp(place.x + is_behind, 0, size - 1);
}
#else
static inline float2 cubic_place(int o, int size, int results, int up, int down) {
    const int3 place = quotient(o, size, results, up, down);
    return (float2)(place.x, (float)place.y / place.z);
}
// The weight of the element before the one before a place, of that one, or of two behind.
static inline float cubic_weight(float part, int tap) {
    const float d = fabs(part + 1 - tap);
    return d <= 1 ? ((CUBE + 2) * d - (CUBE + 3)) * d * d + 1
                  : ((CUBE * d - 5 * CUBE) * d + 8 * CUBE) * d - 4 * CUBE;
}
#endif
#endif

#define AXIS(n, first)                                           \
    {                                                            \
        const int o = item - (first);                            \
        if (o >= 0 && o < OUT_##n) {                             \
            const PLACE_T p = PLACE_##n(o);                      \
            for (int t = 0; t < TAPS; t++) {                     \
                index[item * TAPS + t] = INDEX_##n(p, t);        \
                KEEP_WEIGHT(item * TAPS + t, WEIGHT_##n(p, t)); \
            }                                                    \
        }                                                        \
    }

KERNEL(resample_places) {
    const int item = get_global_id(0);
    AXIS(0, 0)
    AXIS(1, OUT_0)
    AXIS(2, OUT_0 + OUT_1)
}
