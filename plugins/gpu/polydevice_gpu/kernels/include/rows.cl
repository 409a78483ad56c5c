// Where the rows and terms of a product lie in its input: rows are pixels of the result, terms are
// taps of the window by input channels.
// Needs: KERNEL_*, STRIDE_*, DILATION_*, PAD_*, IN_*, OUT_*, CHANNELS_IN, ROWS, FLAT (rows are one
// line of pixels).
#define FAR (-(1 << 28))
#if FLAT
#define PLACE_ROW(i, m)                                                                           \
    row_x[i] = m < ROWS ? m : FAR;                                                                \
    row_y[i] = row_z[i] = row_b[i] = 0;
#else
#define PLACE_ROW(i, m)                                                                           \
    row_x[i] = m % OUT_X * STRIDE_X - PAD_X;                                                      \
    row_y[i] = m / OUT_X % OUT_Y * STRIDE_Y - PAD_Y;                                              \
    row_z[i] = m < ROWS ? m / OUT_X / OUT_Y % OUT_Z * STRIDE_Z - PAD_Z : FAR;                     \
    row_b[i] = m / OUT_X / OUT_Y / OUT_Z;
#endif
// Declare where `count` rows begin, the first one and others `apart` from each other.
#define DECLARE_ROWS(count, first, apart)                                                         \
    int row_b[count], row_z[count], row_y[count], row_x[count];                                   \
    _Pragma("unroll") for (int i = 0; i < count; i++) {                                           \
        const int m = first + i * (apart);                                                        \
        PLACE_ROW(i, m)                                                                           \
    }

// Declare the tap kz, ky, kx and the channel c of a term.
#define DECLARE_TERM(term)                                                                        \
    int c = (term) % CHANNELS_IN, kx = (term) / CHANNELS_IN;                                      \
    int ky = kx / KERNEL_X, kz = ky / KERNEL_Y;                                                   \
    kx %= KERNEL_X, ky %= KERNEL_Y;
// Move on by `count` terms.
#define SKIP_TERMS(count)                                                                         \
    c += count;                                                                                   \
    while (c >= CHANNELS_IN) {                                                                    \
        c -= CHANNELS_IN;                                                                         \
        if (++kx == KERNEL_X) {                                                                   \
            kx = 0;                                                                               \
            if (++ky == KERNEL_Y) ky = 0, kz++;                                                   \
        }                                                                                         \
    }

// Declare what row i reads for the term, and whether that is inside of the input and the window.
#define FIND_INPUT(i)                                                                             \
    const int iz = row_z[i] + kz * DILATION_Z, iy = row_y[i] + ky * DILATION_Y;                   \
    const int ix = row_x[i] + kx * DILATION_X;                                                    \
    const int inside = kz < KERNEL_Z && iz >= 0 && iz < IN_Z && iy >= 0 && iy < IN_Y &&           \
                       ix >= 0 && ix < IN_X;
// Its index, if it is inside.
#define INPUT_AT(i) IN0_AT(row_b[i], iz, iy, ix, c)
