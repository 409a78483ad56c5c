// from_yuv_ref: one work-item computes one channel of one pixel (BT.601, 16 to 235).
// NDRange: {WIDTH * 3, HEIGHT, batch}.
// Layouts: any.   Types: any; arithmetic in float, integers rounded and saturated.
// Needs: HEIGHT and WIDTH of the image, U(n, h, w) and V(n, h, w), BLUE_FIRST, INTEGER, STORED(v).
// The chroma of 2 x 2 pixels is one pair, not interpolated.
KERNEL(from_yuv_ref) {
    const int w = get_global_id(0) / 3, c = get_global_id(0) % 3;
    const int h = get_global_id(1), n = get_global_id(2);
    const float luma = 1.164f * ((float)IN0_LOAD(IN0_AT(n, h, w, 0)) - 16.0f);
    const float u = (float)U(n, h, w) - 128.0f, v = (float)V(n, h, w) - 128.0f;
    const int colour = BLUE_FIRST ? 2 - c : c;
    const float sum = colour == 0   ? luma + 1.596f * v
                      : colour == 1 ? luma - 0.391f * u - 0.813f * v
                                    : luma + 2.018f * u;
    const float value = clamp(sum, 0.0f, 255.0f);
#if INTEGER
    WRITE(STORED(floor(value + 0.5f)), n, h, w, c);
#else
    WRITE(value, n, h, w, c);
#endif
}
