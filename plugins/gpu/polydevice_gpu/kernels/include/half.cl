// Vectors of half at any address, one element at a time; see types.py.

static inline float2 load_half2(__global const half* p) {
    return (float2)(
        vload_half(0, p), vload_half(1, p));
}

static inline float4 load_half4(__global const half* p) {
    return (float4)(
        vload_half(0, p), vload_half(1, p), vload_half(2, p), vload_half(3, p));
}

static inline float8 load_half8(__global const half* p) {
    return (float8)(
        vload_half(0, p), vload_half(1, p), vload_half(2, p), vload_half(3, p), vload_half(4,
        p), vload_half(5, p), vload_half(6, p), vload_half(7, p));
}

static inline float16 load_half16(__global const half* p) {
    return (float16)(
        vload_half(0, p), vload_half(1, p), vload_half(2, p), vload_half(3, p), vload_half(4,
        p), vload_half(5, p), vload_half(6, p), vload_half(7, p), vload_half(8, p),
        vload_half(9, p), vload_half(10, p), vload_half(11, p), vload_half(12, p),
        vload_half(13, p), vload_half(14, p), vload_half(15, p));
}

static inline void store_half2(float2 v, __global half* p) {
    float lanes[2];
    vstore2(v, 0, lanes);
    for (int i = 0; i < 2; i++) vstore_half(lanes[i], i, p);
}

static inline void store_half4(float4 v, __global half* p) {
    float lanes[4];
    vstore4(v, 0, lanes);
    for (int i = 0; i < 4; i++) vstore_half(lanes[i], i, p);
}

static inline void store_half8(float8 v, __global half* p) {
    float lanes[8];
    vstore8(v, 0, lanes);
    for (int i = 0; i < 8; i++) vstore_half(lanes[i], i, p);
}

static inline void store_half16(float16 v, __global half* p) {
    float lanes[16];
    vstore16(v, 0, lanes);
    for (int i = 0; i < 16; i++) vstore_half(lanes[i], i, p);
}
