// convolution_bytes: one work-item computes VECTORS * 16 output channels of PIXELS neighbours in a row
// of a convolution of bytes, for EACH blocks of channels in turn.
// NDRange: {TILES, CHUNKS, batch * OUT_Z * OUT_Y}.
// Layouts: input with channels side by side, any where there are FEW.   Types: u8, i8; sums in int.
// Needs: vpdpbusd, in inline assembly (IN_ASSEMBLY), or by LLVM's name for it, as a function on vectors
// of bytes (ON_BYTES) or of words; KERNEL_*, STRIDE_*, DILATION_*, PAD_*, IN_*, OUT_*, GROUP_IN,
// GROUP_OUT, PADDED_OUT (channels of a group, in whole blocks), BLOCKS, EACH, VECTORS, PIXELS, GROUPED,
// REST (input channels of a group modulo 4), FLIPPED (the input has a sign), STARTS (what sums begin
// with, by POINT), if HAS_STARTS; LACKING, what weights of an output have more than FILTER says, if HAS_LACKING; PADDING, bytes that stand for a pixel outside; EIGHTS, FOURS (whether channels of a
// group beyond whole vectors fill such ones), WHOLE (whether there are none beyond); FEW (less than four
// input channels); FILTER packed as [block, tap, in / 4, lane, in % 4].
#define LANES (16 * VECTORS)
#define QUADS (GROUP_IN / 4)
// The instruction takes bytes without a sign for the first factor: 128 more, which STARTS knows.
#if FLIPPED
#define BYTES(x) (int16)((x) ^ 0x80808080)
#else
#define BYTES(x) (int16)(x)
#endif
// Both ways are those that cl/probing/dot_products.py tries before any kernel takes them.
#if IN_ASSEMBLY
#define ADD_QUADS(sum, x, w) __asm__("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(x), "v"(w))
#else
#if ON_BYTES
typedef char factor __attribute__((ext_vector_type(64)));
#else
typedef int16 factor;
#endif
int16 add_quads(int16, factor, factor) __asm("llvm.x86.avx512.vpdpbusd.512");
#define AS_FACTOR(x) __builtin_astype(x, factor)
#define ADD_QUADS(sum, x, w) sum = add_quads(sum, AS_FACTOR(x), AS_FACTOR(w))
#endif
#define ADD_PRODUCTS(quad, read)                                                                  \
    {                                                                                             \
        int16 w[VECTORS];                                                                         \
        _Pragma("unroll") for (int v = 0; v < VECTORS; v++)                                       \
            w[v] = *(__global const loose_int16*)(weights + (quad) * LANES + v * 16);             \
        _Pragma("unroll") for (int p = 0; p < PIXELS; p++) {                                      \
            const int16 x = BYTES(read(at[p] + (quad) * 4));                                      \
            _Pragma("unroll") for (int v = 0; v < VECTORS; v++)                                   \
                ADD_QUADS(sum[p][v], x, w[v]);                                                    \
        }                                                                                         \
    }
#define READ_PIXEL(from) *(from)
#define READ_QUAD(from) as_int(vload4(0, from))
#if REST == 1
#define READ_APART(from, step) (from)[0]
#elif REST == 2
#define READ_APART(from, step) ((from)[0] | (from)[step] << 8)
#else
#define READ_APART(from, step) ((from)[0] | (from)[step] << 8 | (from)[2 * (step)] << 16)
#endif
#define READ_REST(from) READ_APART(from, 1)
#define PLANE (IN0_AT(0, 0, 0, 0, 1) - IN0_AT(0, 0, 0, 0, 0))
#define SPAN ((PIXELS - 1) * STRIDE_X + (KERNEL_X - 1) * DILATION_X + 1)
#if HAS_LACKING
// The sum of all channels of a pixel.
static inline int sum_of(__global const uchar* at, int step, int count) {
    int16 sums = (int16)(0);
    int i = 0, sum = 0;
#if !FEW
    for (; i + 64 <= count; i += 64) {
        const int16 x =
            *(__global const loose_int16*)(at + i) ^ (int16)(FLIPPED ? 0x80808080 : 0);
        ADD_QUADS(sums, x, (int16)(0x01010101));
    }
    for (; i + 16 <= count; i += 16)
        sums += convert_int16(vload16(0, at + i) ^ (uchar16)(FLIPPED ? 0x80 : 0));
#endif
    for (; i < count; i++) sum += (uchar)(at[i * step] ^ (FLIPPED ? 0x80 : 0));
    const int8 eight = sums.lo + sums.hi;
    const int4 four = eight.lo + eight.hi;
    return sum + four.s0 + four.s1 + four.s2 + four.s3;
}
#endif

KERNEL(convolution_bytes) {
    const int tile = get_global_id(0), chunk = get_global_id(1);
    const int y = get_global_id(2) % OUT_Y, z = get_global_id(2) / OUT_Y % OUT_Z;
    const int b = get_global_id(2) / OUT_Y / OUT_Z;
    const int first_x = tile * PIXELS;
#if HAS_LACKING
    int whole[PIXELS];
    for (int p = 0; p < PIXELS; p++) whole[p] = 0;
    for (int kz = 0; kz < KERNEL_Z; kz++) {
        const int iz = z * STRIDE_Z - PAD_Z + kz * DILATION_Z;
        for (int ky = 0; ky < KERNEL_Y; ky++) {
            const int iy = y * STRIDE_Y - PAD_Y + ky * DILATION_Y;
            for (int kx = 0; kx < KERNEL_X; kx++) {
                for (int p = 0; p < PIXELS; p++) {
                    const int ix = (first_x + p) * STRIDE_X - PAD_X + kx * DILATION_X;
                    const int inside =
                        iz >= 0 && iz < IN_Z && iy >= 0 && iy < IN_Y && ix >= 0 && ix < IN_X;
                    whole[p] += inside
                        ? sum_of((__global const uchar*)in0 + IN0_AT(b, iz, iy, ix, 0), PLANE, GROUP_IN)
                        : sum_of(PADDING, 1, GROUP_IN);
                }
            }
        }
    }
#endif
    for (int block = chunk * EACH; block < min((chunk + 1) * EACH, BLOCKS); block++) {
        const int group = GROUPED ? block * LANES / PADDED_OUT : 0, first = group * GROUP_IN;
        int16 sum[PIXELS][VECTORS];
        #pragma unroll
        for (int p = 0; p < PIXELS; p++)
            #pragma unroll
            for (int v = 0; v < VECTORS; v++)
#if HAS_STARTS
                sum[p][v] = POINT *
                    *(__global const loose_int16*)(starts + block * LANES + v * 16);
#else
                sum[p][v] = (int16)(0);
#endif
#if HAS_LACKING
        #pragma unroll
        for (int p = 0; p < PIXELS; p++)
            #pragma unroll
            for (int v = 0; v < VECTORS; v++)
                sum[p][v] += whole[p] *
                    *(__global const loose_int16*)(lacking + block * LANES + v * 16);
#endif
        __global const int* weights = (__global const int*)filter +
            (size_t)block * KERNEL_Z * KERNEL_Y * KERNEL_X * (QUADS + (REST > 0)) * LANES;
        for (int kz = 0; kz < KERNEL_Z; kz++) {
            const int iz = z * STRIDE_Z - PAD_Z + kz * DILATION_Z;
            for (int ky = 0; ky < KERNEL_Y; ky++) {
                const int iy = y * STRIDE_Y - PAD_Y + ky * DILATION_Y;
                const int inside = iz >= 0 && iz < IN_Z && iy >= 0 && iy < IN_Y;
#if FEW
                // Fewer channels than products of a sum: pixels are put together once for all taps.
                int pixels[SPAN];
                for (int i = 0; i < SPAN; i++) {
                    const int ix = first_x * STRIDE_X - PAD_X + i;
                    pixels[i] = READ_APART(PADDING, 1);
                    if (inside && ix >= 0 && ix < IN_X) {
                        __global const uchar* at =
                            (__global const uchar*)in0 + IN0_AT(b, iz, iy, ix, first);
                        pixels[i] = READ_APART(at, PLANE);
                    }
                }
                const int* at[PIXELS];
                #pragma unroll
                for (int p = 0; p < PIXELS; p++) at[p] = pixels + p * STRIDE_X;
                for (int kx = 0; kx < KERNEL_X; kx++) {
                    ADD_PRODUCTS(0, READ_PIXEL)
                    #pragma unroll
                    for (int p = 0; p < PIXELS; p++) at[p] += DILATION_X;
                    weights += LANES;
                }
#else
                for (int kx = 0; kx < KERNEL_X; kx++) {
                    __global const uchar* at[PIXELS];
                    #pragma unroll
                    for (int p = 0; p < PIXELS; p++) {
                        const int ix = (first_x + p) * STRIDE_X - PAD_X + kx * DILATION_X;
                        at[p] = inside && ix >= 0 && ix < IN_X
                            ? (__global const uchar*)in0 + IN0_AT(b, iz, iy, ix, first) : PADDING;
                    }
                    for (int quad = 0; quad < QUADS; quad++) ADD_PRODUCTS(quad, READ_QUAD)
#if REST
                    ADD_PRODUCTS(QUADS, READ_REST)
#endif
                    weights += (QUADS + (REST > 0)) * LANES;
                }
#endif
            }
        }
        // One copy of what follows serves all sums, or compiling it takes longer than all the rest.
        int16 made[PIXELS * VECTORS];
        #pragma unroll
        for (int p = 0; p < PIXELS; p++)
            #pragma unroll
            for (int v = 0; v < VECTORS; v++) made[p * VECTORS + v] = sum[p][v];
        #pragma unroll 1
        for (int i = 0; i < PIXELS * VECTORS; i++) {
            const int x = first_x + i / VECTORS;
            const int within = block * LANES - group * PADDED_OUT + i % VECTORS * 16;
            int n = group * GROUP_OUT + within, count = x < OUT_X ? min(GROUP_OUT - within, 16) : 0;
            int16 left = made[i];
            if (count == 16) {
                WRITE16(left, b, z, y, x, n);
                continue;
            }
#if WHOLE
        }
#else
#if EIGHTS
            if (count >= 8) {
                WRITE8(left.lo, b, z, y, x, n);
                left.lo = left.hi, n += 8, count -= 8;
            }
#endif
#if FOURS
            if (count >= 4) {
                WRITE4(left.lo.lo, b, z, y, x, n);
                left.lo.lo = left.lo.hi, n += 4, count -= 4;
            }
#endif
            WRITE16_FIRST(count, left, b, z, y, x, n);
        }
#endif
    }
}
