// resample_yuv_ref: one work-item computes one pixel of a resized image, all three channels, as a
// weighted sum of the frame's pixels in colour.
// NDRange: {columns, rows, batch} of the result.
// Layouts: any.   Types: any frame, floating-point results; sums in float.
// Needs: HEIGHT and WIDTH of the frame, U(n, h, w) and V(n, h, w), RED, GREEN and BLUE of (y, u, v),
// BLUE_FIRST, ROUNDED (colours are integers before they are weighted), the tables ROW_INDEX,
// ROW_WEIGHT, COLUMN_INDEX and COLUMN_WEIGHT [size, taps], ROW_TAPS and COLUMN_TAPS.
KERNEL(resample_yuv_ref) {
    const int column = get_global_id(0), row = get_global_id(1), n = get_global_id(2);
    float red = 0, green = 0, blue = 0;
    for (int i = 0; i < ROW_TAPS; i++)
        for (int j = 0; j < COLUMN_TAPS; j++) {
            const int h = ROW_INDEX_LOAD(ROW_INDEX_AT(row, i));
            const int w = COLUMN_INDEX_LOAD(COLUMN_INDEX_AT(column, j));
            const float weight = ROW_WEIGHT_LOAD(ROW_WEIGHT_AT(row, i)) *
                                 COLUMN_WEIGHT_LOAD(COLUMN_WEIGHT_AT(column, j));
            const float y = IN0_LOAD(IN0_AT(n, h, w, 0)), u = U(n, h, w), v = V(n, h, w);
#if ROUNDED
            red += weight * floor(RED(y, u, v) + 0.5f);
            green += weight * floor(GREEN(y, u, v) + 0.5f);
            blue += weight * floor(BLUE(y, u, v) + 0.5f);
#else
            red += weight * RED(y, u, v);
            green += weight * GREEN(y, u, v);
            blue += weight * BLUE(y, u, v);
#endif
        }
    WRITE(BLUE_FIRST ? blue : red, n, 0, row, column);
    WRITE(green, n, 1, row, column);
    WRITE(BLUE_FIRST ? red : blue, n, 2, row, column);
}
