// convolution_words: one work-item computes VECTORS * 16 output channels of PIXELS neighbours in a row
// of a convolution of floats that it rounds to 16 bits, for EACH blocks of channels in turn.
// NDRange: {TILES, CHUNKS, batch * OUT_Z * OUT_Y}.
// Layouts: input with channels side by side.   Types: float; sums in int.
// Needs: vpdpwssd in inline assembly (IN_ASSEMBLY), or vpmaddwd by LLVM's name for it; KERNEL_*,
// STRIDE_*, DILATION_*, PAD_*, IN_*, OUT_*, TERMS (channels), GROUP_OUT, BLOCKS, EACH, VECTORS, PIXELS; INVERSE
// (of the scale), LOW, HIGH (limits of whole numbers), LESS (so many fewer are kept, to fit into i16),
// STARTS (what sums begin with, if LESS is not 0); FILTER packed as [block, tap, in / 2, lane, in % 2].
#define LANES (16 * VECTORS)
#define PAIRS ((TERMS + 1) / 2)
#define SPAN ((PIXELS - 1) * STRIDE_X + (KERNEL_X - 1) * DILATION_X + 1)
#if IN_ASSEMBLY
#define ADD_PAIRS(sum, x, w) __asm__("vpdpwssd %2, %1, %0" : "+v"(sum) : "v"(x), "v"(w))
#else
typedef short words __attribute__((ext_vector_type(32)));
int16 add_pairs(words, words) __asm("llvm.x86.avx512.pmaddw.d.512");
#define AS_WORDS(x) __builtin_astype(x, words)
#define ADD_PAIRS(sum, x, w) sum += add_pairs(AS_WORDS(x), AS_WORDS(w))
#endif
// Adding 1.5 * 2^23 leaves the nearest whole number in the lower bits.
#define RAISED(x) (fmin(fmax((x) * INVERSE, LOW), HIGH) + 0x1.8p23f)
#define LOWERED(x) ((x) - (0x4B400000 + LESS))

KERNEL(convolution_words) {
    const int tile = get_global_id(0), chunk = get_global_id(1);
    const int y = get_global_id(2) % OUT_Y, z = get_global_id(2) / OUT_Y % OUT_Z;
    const int b = get_global_id(2) / OUT_Y / OUT_Z;
    const int first_x = tile * PIXELS;
    // What all sums read, in pairs of channels; each pixel is rounded once.
    int pairs[KERNEL_Z * KERNEL_Y * SPAN * PAIRS] __attribute__((aligned(64)));
    for (int ky = 0; ky < KERNEL_Z * KERNEL_Y; ky++) {
        const int iz = z * STRIDE_Z - PAD_Z + ky / KERNEL_Y * DILATION_Z;
        const int iy = y * STRIDE_Y - PAD_Y + ky % KERNEL_Y * DILATION_Y;
        const int inside = iz >= 0 && iz < IN_Z && iy >= 0 && iy < IN_Y;
        for (int i = 0; i < SPAN; i++) {
            const int ix = first_x * STRIDE_X - PAD_X + i;
            short* to = (short*)(pairs + (ky * SPAN + i) * PAIRS);
            int c = 0;
            to[2 * PAIRS - 1] = 0;
            if (inside && ix >= 0 && ix < IN_X) {
                __global const float* from = in0 + IN0_AT(b, iz, iy, ix, 0);
                for (; c + 16 <= TERMS; c += 16)
                    vstore16(convert_short16(LOWERED(as_int16(RAISED(vload16(0, from + c))))), 0, to + c);
                for (; c < TERMS; c++) to[c] = (short)LOWERED(as_int(RAISED(from[c])));
            } else {
                for (; c < TERMS; c++) to[c] = -LESS;
            }
        }
    }
    for (int block = chunk * EACH; block < min((chunk + 1) * EACH, BLOCKS); block++) {
        int16 sum[PIXELS][VECTORS];
        #pragma unroll
        for (int p = 0; p < PIXELS; p++)
            #pragma unroll
            for (int v = 0; v < VECTORS; v++)
#if LESS
                sum[p][v] = *(__global const loose_int16*)(starts + block * LANES + v * 16);
#else
                sum[p][v] = (int16)(0);
#endif
        __global const int* weights = (__global const int*)filter +
            (size_t)block * KERNEL_Z * KERNEL_Y * KERNEL_X * PAIRS * LANES;
        for (int ky = 0; ky < KERNEL_Z * KERNEL_Y; ky++) {
            for (int kx = 0; kx < KERNEL_X; kx++) {
                const int* at = pairs + (ky * SPAN + kx * DILATION_X) * PAIRS;
                for (int pair = 0; pair < PAIRS; pair++) {
                    int16 w[VECTORS];
                    #pragma unroll
                    for (int v = 0; v < VECTORS; v++)
                        w[v] = *(__global const loose_int16*)(weights + pair * LANES + v * 16);
                    #pragma unroll
                    for (int p = 0; p < PIXELS; p++) {
                        const int16 x = (int16)(at[p * STRIDE_X * PAIRS + pair]);
                        #pragma unroll
                        for (int v = 0; v < VECTORS; v++) ADD_PAIRS(sum[p][v], x, w[v]);
                    }
                }
                weights += PAIRS * LANES;
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
            const int x = first_x + i / VECTORS, n = block * LANES + i % VECTORS * 16;
            const int count = x < OUT_X ? min(GROUP_OUT - n, 16) : 0;
            const float16 left = convert_float16(made[i]);
            if (count == 16)
                WRITE16(left, b, z, y, x, n);
            else
                WRITE16_FIRST(count, left, b, z, y, x, n);
        }
    }
}
