// pooling_vector: one work-item computes WIDTH neighbouring channels of one pooled element.
// NDRange: {CHANNELS / WIDTH, OUT_X, batch * OUT_Z * OUT_Y}; local size free.
// Layouts: input with contiguous channels; result any.   Types: half, float, sums in float; maxima of
// bytes, too.
// Needs: as pooling_ref, and WIDTH, COLUMNS (OUT_X), LARGER (the function of two vectors).
// WIDTH divides CHANNELS.
#include "include/window.cl"
#define JOIN2(a, b) a##b
#define JOIN(a, b) JOIN2(a, b)
#define VECTOR JOIN(IN0_C, WIDTH)

KERNEL(pooling_vector) {
    const int c = get_global_id(0) * WIDTH, x = get_global_id(1);
    const int y = get_global_id(2) % OUT_Y, z = get_global_id(2) / OUT_Y % OUT_Z;
    const int b = get_global_id(2) / OUT_Y / OUT_Z;
    if (c >= CHANNELS || x >= COLUMNS) return;
    const int z0 = z * STRIDE_Z - PAD_Z, y0 = y * STRIDE_Y - PAD_Y, x0 = x * STRIDE_X - PAD_X;
    const int count = COUNTED(z0, y0, x0);
    VECTOR result = (VECTOR)(AVERAGE ? 0 : LOWEST);
    FOR_WINDOW(kz, Z, z0, IN_Z)
        FOR_WINDOW(ky, Y, y0, IN_Y)
            FOR_WINDOW(kx, X, x0, IN_X) {
                const int iz = z0 + kz * DILATION_Z, iy = y0 + ky * DILATION_Y, ix = x0 + kx * DILATION_X;
                if (iz < 0 || iz >= IN_Z || iy < 0 || iy >= IN_Y || ix < 0 || ix >= IN_X) continue;
                const VECTOR v = JOIN(IN0_LOAD, WIDTH)(IN0_AT(b, iz, iy, ix, c));
                result = AVERAGE ? result + v : LARGER(result, v);
            }
#if AVERAGE
    result *= count > 0 ? 1.0f / count : 0.0f;
#endif
    JOIN(WRITE, WIDTH)(result, b, z, y, x, c);
}
