// from_yuv_ref: one work-item computes one channel of one pixel.
// NDRange: {WIDTH * 3, HEIGHT, batch}.
// Layouts: any.   Types: any; arithmetic in float, integers rounded and saturated.
// Needs: HEIGHT and WIDTH of the image, U(n, h, w) and V(n, h, w), RED, GREEN and BLUE of (y, u, v),
// BLUE_FIRST, INTEGER, STORED(v).
// The chroma of 2 x 2 pixels is one pair, not interpolated.
KERNEL(from_yuv_ref) {
    const int w = get_global_id(0) / 3, c = get_global_id(0) % 3;
    const int h = get_global_id(1), n = get_global_id(2);
    const float y = IN0_LOAD(IN0_AT(n, h, w, 0)), u = U(n, h, w), v = V(n, h, w);
    const int colour = BLUE_FIRST ? 2 - c : c;
    const float value = colour == 0 ? RED(y, u, v) : colour == 1 ? GREEN(y, u, v) : BLUE(y, u, v);
#if INTEGER
    WRITE(STORED(floor(value + 0.5f)), n, h, w, c);
#else
    WRITE(value, n, h, w, c);
#endif
}
