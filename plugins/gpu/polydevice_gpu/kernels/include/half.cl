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

// The same at multiples of their size. NVIDIA's compiler has one instruction for its own vectors of
// two and four, but not for longer ones, so there they are put together of pairs of half.
#ifdef __NV_CL_C_VERSION
static inline float2 half_pair(uint bits) {
    float low, high;
    asm("{ .reg .b16 l, h; mov.b32 {l, h}, %2; cvt.f32.f16 %0, l; cvt.f32.f16 %1, h; }"
        : "=f"(low), "=f"(high) : "r"(bits));
    return (float2)(low, high);
}

static inline uint pair_of_half(float low, float high) {
    uint bits;
    asm("{ .reg .b16 l, h; cvt.rn.f16.f32 l, %1; cvt.rn.f16.f32 h, %2; mov.b32 %0, {l, h}; }"
        : "=r"(bits) : "f"(low), "f"(high));
    return bits;
}

static inline float2 load_half2_aligned(__global const half* p) {
    return half_pair(*(__global const uint*)p);
}

static inline float4 load_half4_aligned(__global const half* p) {
    const uint2 bits = *(__global const uint2*)p;
    return (float4)(half_pair(bits.s0), half_pair(bits.s1));
}

static inline float8 load_half8_aligned(__global const half* p) {
    const uint4 bits = *(__global const uint4*)p;
    return (float8)(half_pair(bits.s0), half_pair(bits.s1), half_pair(bits.s2), half_pair(bits.s3));
}

static inline float16 load_half16_aligned(__global const half* p) {
    return (float16)(load_half8_aligned(p), load_half8_aligned(p + 8));
}

static inline void store_half2_aligned(float2 v, __global half* p) {
    *(__global uint*)p = pair_of_half(v.s0, v.s1);
}

static inline void store_half4_aligned(float4 v, __global half* p) {
    *(__global uint2*)p = (uint2)(pair_of_half(v.s0, v.s1), pair_of_half(v.s2, v.s3));
}

static inline void store_half8_aligned(float8 v, __global half* p) {
    *(__global uint4*)p = (uint4)(pair_of_half(v.s0, v.s1), pair_of_half(v.s2, v.s3),
                                  pair_of_half(v.s4, v.s5), pair_of_half(v.s6, v.s7));
}

static inline void store_half16_aligned(float16 v, __global half* p) {
    store_half8_aligned(v.lo, p);
    store_half8_aligned(v.hi, p + 8);
}
#else
#define load_half2_aligned(p) vloada_half2(0, p)
#define load_half4_aligned(p) vloada_half4(0, p)
#define load_half8_aligned(p) vloada_half8(0, p)
#define load_half16_aligned(p) vloada_half16(0, p)
#define store_half2_aligned(v, p) vstorea_half2(v, 0, p)
#define store_half4_aligned(v, p) vstorea_half4(v, 0, p)
#define store_half8_aligned(v, p) vstorea_half8(v, 0, p)
#define store_half16_aligned(v, p) vstorea_half16(v, 0, p)
#endif
