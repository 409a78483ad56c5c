// image_bytes_mma: a work-group computes a tile of TILE_Y by 16 pixels and BN channels of bytes on
// matrix units, from an image of at most four channels, of which a pixel is one word.
// NDRange: {column tiles * THREADS, pixel tiles}; local size {THREADS, 1, 1}.
// Layouts: any.   Types: u8, i8; sums in int.
// Needs: KERNEL_*, STRIDE_*, DILATION_*, PAD_*, IN_Y, IN_X, OUT_Y, OUT_X, TILES_Y, TILES_X, COLUMNS,
// CHANNELS_IN, TILE_Y, BN, WARPS, STEPS (of eight taps), SIGNED (the image has a sign); FILTER as the
// units want it, see image_bytes_mma.py; ZERO, the number that means 0, and STARTS, what sums begin with.
#define THREADS (32 * WARPS)
#define TAPS (KERNEL_Y * KERNEL_X)
#define ROWS_EACH (TILE_Y / WARPS)
#define TILES_N (BN / 8)
#define IMAGE_Y ((TILE_Y - 1) * STRIDE_Y + (KERNEL_Y - 1) * DILATION_Y + 1)
#define IMAGE_X (15 * STRIDE_X + (KERNEL_X - 1) * DILATION_X + 1)
#define WORDS (STEPS * TILES_N * 64)
#include "include/mma_bytes.cl"
#if HAS_STARTS
#define BEGIN(eight, n) eight += *(__global const int8*)(starts + n);
#else
#define BEGIN(eight, n)
#endif
// Where a tap lies in the image; taps beyond the last one are multiplied with zeros.
#define TAP_AT(tap)                                                                  \
    (min(tap, TAPS - 1) / KERNEL_X * DILATION_Y * IMAGE_X + min(tap, TAPS - 1) % KERNEL_X * DILATION_X)

KERNEL(image_bytes_mma) {
    LOCAL_ARRAY(uint, image, IMAGE_Y * IMAGE_X, , 16);
    LOCAL_ARRAY(uint, columns, WORDS, , 16);
    const int thread = get_local_id(0), lane = thread & 31, warp = thread >> 5;
    const int first_n = get_group_id(0) * BN, tile = get_group_id(1);
    const int first_x = tile % TILES_X * 16, first_y = tile / TILES_X % TILES_Y * TILE_Y;
    const int batch = tile / TILES_X / TILES_Y;
    __global const uint4* from = (__global const uint4*)(filter + (size_t)first_n / BN * WORDS * 4);
    for (int i = thread; i < WORDS / 4; i += THREADS) vstore4(from[i], i, columns);
    #pragma unroll 4
    for (int i = thread; i < IMAGE_Y * IMAGE_X; i += THREADS) {
        const int y = first_y * STRIDE_Y - PAD_Y + i / IMAGE_X;
        const int x = first_x * STRIDE_X - PAD_X + i % IMAGE_X;
        uint word = (uchar)(ZERO) * 0x01010101u;
        if (y >= 0 && y < IN_Y && x >= 0 && x < IN_X) {
            word = 0;
            #pragma unroll
            for (int c = 0; c < CHANNELS_IN; c++)
                word |= (uint)(uchar)IN0_LOAD(IN0_AT(batch, 0, y, x, c)) << 8 * c;
        }
        image[i] = word;
    }
    barrier(CLK_LOCAL_MEM_FENCE);

    int sum[ROWS_EACH][TILES_N][4];
    #pragma unroll
    for (int i = 0; i < ROWS_EACH; i++)
        #pragma unroll
        for (int j = 0; j < TILES_N; j++)
            #pragma unroll
            for (int k = 0; k < 4; k++) sum[i][j][k] = 0;
    // A lane has pixels lane / 4 and that + 8 of a row, and taps lane % 4 and that + 4 of a step.
    const int row = warp * ROWS_EACH;
    const int pixel = row * STRIDE_Y * IMAGE_X + (lane >> 2) * STRIDE_X;
    #pragma unroll
    for (int step = 0; step < STEPS; step++) {
        const int low = pixel + TAP_AT(step * 8 + (lane & 3));
        const int high = pixel + TAP_AT(step * 8 + 4 + (lane & 3));
        uint a[ROWS_EACH][4];
        #pragma unroll
        for (int i = 0; i < ROWS_EACH; i++) {
            a[i][0] = image[low + i * STRIDE_Y * IMAGE_X];
            a[i][1] = image[low + i * STRIDE_Y * IMAGE_X + 8 * STRIDE_X];
            a[i][2] = image[high + i * STRIDE_Y * IMAGE_X];
            a[i][3] = image[high + i * STRIDE_Y * IMAGE_X + 8 * STRIDE_X];
        }
        #pragma unroll
        for (int j = 0; j < TILES_N; j++) {
            const uint2 b = vload2((j * STEPS + step) * 32 + lane, columns);
            #pragma unroll
            for (int i = 0; i < ROWS_EACH; i++) MULTIPLY(sum[i][j], a[i], b.s0, b.s1);
        }
    }
    #pragma unroll
    for (int j = 0; j < TILES_N; j += 4)
        #pragma unroll
        for (int i = 0; i < ROWS_EACH; i++)
            #pragma unroll
            for (int k = 0; k < 4; k += 2) {
                const int n = first_n + j * 8 + (lane & 3) * 8;
                const int y = first_y + row + i, x = first_x + (lane >> 2) + k * 4;
                if (n < COLUMNS && y < OUT_Y && x < OUT_X) {
                    int8 eight = (int8)(
                        sum[i][j][k], sum[i][j][k + 1], sum[i][j + 1][k], sum[i][j + 1][k + 1],
                        sum[i][j + 2][k], sum[i][j + 2][k + 1], sum[i][j + 3][k], sum[i][j + 3][k + 1]);
                    BEGIN(eight, n)
                    WRITE8(eight, (batch * OUT_Y + y) * OUT_X + x, n);
                }
            }
}
