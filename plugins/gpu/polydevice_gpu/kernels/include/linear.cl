// Where results of linear interpolation lie among elements; of kernels that have tables, nothing.
// Needs: LINEAR (whether there are such), PLACES (0: by centres; 1: an only one is the first; 2: by
// corners; 3: both ends together), BY_SCALES.
#if LINEAR
// The element before result o, and how far behind it that lies.
static inline float2 linear_place(int o, int size, int results, float scale) {
    if (PLACES == 1 && results == 1) return (float2)(0.0f, 0.0f);
#if BY_SCALES
    const float place = PLACES == 2 ? o / scale : (o + 0.5f) / scale - 0.5f;
    const float within = clamp(place, 0.0f, (float)(size - 1)), low = floor(within);
    return (float2)(low, within - low);
#else
    // In whole numbers, so that no place is rounded to the next element.
    const int above = PLACES == 2 ? o * size : PLACES == 3 ? o * (size - 1) : (2 * o + 1) * size - results;
    const int below = PLACES == 2 ? results : PLACES == 3 ? max(results - 1, 1) : 2 * results;
    if (above <= 0) return (float2)(0.0f, 0.0f);
    const int low = above / below;
    if (low >= size - 1) return (float2)(size - 1, 0.0f);
    return (float2)(low, (float)(above - low * below) / below);
#endif
}
#endif
