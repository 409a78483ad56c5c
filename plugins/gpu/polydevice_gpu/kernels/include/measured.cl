// WRITE_MEASURED(four, m, n): store four neighbours of a row, epilogue included; `four` is then what
// lies there, for who measures it.
// Needs: WRITE4, and RESULT4 where the epilogue can be had by itself; IN_HALVES (OUT0 is of half, not
// of float).
#ifdef RESULT4
#if !IN_HALVES
#define AS_STORED(v) (v)
#elif defined(__NV_CL_C_VERSION)
#define AS_STORED(v) \
    (float4)(half_pair(pair_of_half((v).s0, (v).s1)), half_pair(pair_of_half((v).s2, (v).s3)))
#else
static inline float4 as_halves(float4 v) {
    ushort bits[4];
    vstore_half4(v, 0, (half*)bits);
    return vload_half4(0, (const half*)bits);
}
#define AS_STORED(v) as_halves(v)
#endif
#define WRITE_MEASURED(four, m, n)                                                          \
    four = RESULT4(four, m, n);                                                             \
    OUT0_STORE4(OUT0_AT(m, n), four);                                                       \
    four = AS_STORED(four);
#else
#define WRITE_MEASURED(four, m, n)                                                          \
    WRITE4(four, m, n);                                                                     \
    four = (float4)(OUT0_LOAD(OUT0_AT(m, n)), OUT0_LOAD(OUT0_AT(m, n + 1)),                 \
                    OUT0_LOAD(OUT0_AT(m, n + 2)), OUT0_LOAD(OUT0_AT(m, n + 3)));
#endif
