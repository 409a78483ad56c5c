// gemm_wgmma: a work-group computes BM pixels (rows) by BN channels (columns) with the matrix
// instruction of warp groups, which takes both factors from local memory.
// NDRange: {column tiles * THREADS, row tiles, SPLIT}; local size {THREADS, 1, 1}.
// Layouts: channels side by side, a multiple of 8 of them.   Types: half; sums in float.
// Needs: as warp_group_product.cl, WIDE (columns are a multiple of 8).
#define PRODUCT gemm_wgmma
#define ELEMENT half
#define ELEMENT_BYTES 2
#define WEIGHT half
#define TERMS_AND_TYPES "k16.f32.f16.f16"
#define HOW "1, 1, 1, 0, 0"
#define SUM2 float2
#define SUM8 float8
#define SUM_IN(x) "+f"(x)
#define FROM_PART4(part) (part)
#if !NORMALIZED
#define BEGIN(eight, n)
#endif
#define COPY_INSIDE(to, from, inside) COPY(to, from, inside ? 16 : 0)
#define TOGETHER 1
#include "include/warp_group_product.cl"
