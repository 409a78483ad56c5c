// gemm_bytes_wgmma: a work-group computes BM pixels (rows) by BN channels (columns) of bytes with the
// matrix instruction of warp groups, which takes both factors from local memory.
// NDRange: {column tiles * THREADS, row tiles, SPLIT}; local size {THREADS, 1, 1}.
// Layouts: channels side by side, a multiple of 16 of them.   Types: u8, i8; sums in int.
// Needs: as warp_group_product.cl, a multiple of 8 columns; SIGNED (the input has a sign); ZERO, the
// number that means 0, and if that is another FILL, 16 of them, and STARTS, what is added to sums.
#define PRODUCT gemm_bytes_wgmma
#define ELEMENT_BYTES 1
#define WEIGHT char
#if SIGNED
#define ELEMENT char
#define TERMS_AND_TYPES "k32.s32.s8.s8"
#else
#define ELEMENT uchar
#define TERMS_AND_TYPES "k32.s32.u8.s8"
#endif
#define HOW "1"
#define WIDE 1
#undef SUM  // parts travel as the bits of floats, which are moved as they are
#define SUM int
#define SUM8 int8
#define SUM_IN(x) "+r"(x)
#define FROM_PART4(part) as_int4(part)
#if HAS_STARTS
#define BEGIN(eight, n) eight += *(__global const int8*)(starts + n);
#define COPY_INSIDE(to, from, inside) \
    COPY(to, inside ? from : (__global const ELEMENT*)fill, 16)
#else
#define BEGIN(eight, n)
#define COPY_INSIDE(to, from, inside) COPY(to, from, inside ? 16 : 0)
#endif
#define TOGETHER 1  // ResNet-50, batch 32, H200: layers with residual sums 44 -> 38 us, others 30 -> 26
#include "include/warp_group_product.cl"
