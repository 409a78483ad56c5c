// ps_roi_pooling_ref: one work-item computes one bin of one region and output channel.
// NDRange: {bins across, bins down, output channels * regions}; local size free.
// Layouts: any.   Types: floats; sums in float.
// Needs: IMAGES CHANNELS (of the output) HEIGHT WIDTH BINS_Y BINS_X, SCALE, BILINEAR (the mean of
//        SAMPLES_Y * SAMPLES_X samples, each of channels of its own, in place of a bin's average).
// A region that is not finite, or of an image that is not there, gives 0; so does an empty bin.
float roi_round(float x) { return trunc(x + copysign(0.5f, x)); }

float roi_spread(float start, float length, int bins, int bin, int size) {
    if (bins == 1) return (start + start + length) * (size - 1) / 2;
    return bin * (length * (size - 1) / (bins - 1)) + start * (size - 1);
}

KERNEL(ps_roi_pooling_ref) {
    const int j = get_global_id(0), i = get_global_id(1);
    const int c = get_global_id(2) % CHANNELS, r = get_global_id(2) / CHANNELS;
    const float number = IN1_LOAD(IN1_AT(r, 0));
    float box[4];
    int usable = number >= 0 && number < IMAGES;
    for (int k = 0; k < 4; ++k) {
        box[k] = IN1_LOAD(IN1_AT(r, k + 1));
        usable = usable && fabs(box[k]) < 1e9f;
    }
    float total = 0;
    if (usable && BILINEAR) {
        const int image = (int)number;
        const float width = (box[2] - box[0]) * SCALE / SAMPLES_X;
        const float height = (box[3] - box[1]) * SCALE / SAMPLES_Y;
        for (int s = 0; s < SAMPLES_Y; ++s) {
            const float y = roi_spread(box[1] * SCALE + s * height, height, BINS_Y, i, HEIGHT);
            if (!(y > -1 && y < HEIGHT)) continue;
            const float py = clamp(y, 0.0f, (float)(HEIGHT - 1));
            const int top = (int)py, bottom = min(top + 1, HEIGHT - 1);
            for (int t = 0; t < SAMPLES_X; ++t) {
                const float x = roi_spread(box[0] * SCALE + t * width, width, BINS_X, j, WIDTH);
                if (!(x > -1 && x < WIDTH)) continue;
                const float px = clamp(x, 0.0f, (float)(WIDTH - 1));
                const int left = (int)px, right = min(left + 1, WIDTH - 1);
                const int source = (s * SAMPLES_X + t) * CHANNELS + c;
                const float upper = mix((float)IN0_LOAD(IN0_AT(image, source, top, left)),
                                        (float)IN0_LOAD(IN0_AT(image, source, top, right)),
                                        px - left);
                const float lower = mix((float)IN0_LOAD(IN0_AT(image, source, bottom, left)),
                                        (float)IN0_LOAD(IN0_AT(image, source, bottom, right)),
                                        px - left);
                total += mix(upper, lower, py - top);
            }
        }
        total /= SAMPLES_X * SAMPLES_Y;
    } else if (usable) {
        const int image = (int)number, source = (c * BINS_Y + i) * BINS_X + j;
        const float left = roi_round(box[0]) * SCALE, top = roi_round(box[1]) * SCALE;
        const float step_x = ((roi_round(box[2]) + 1) * SCALE - left) / BINS_X;
        const float step_y = ((roi_round(box[3]) + 1) * SCALE - top) / BINS_Y;
        const int y0 = (int)clamp(floor(top + i * step_y), 0.0f, (float)(HEIGHT - 1));
        const int y1 = (int)clamp(ceil(top + (i + 1) * step_y), 0.0f, (float)HEIGHT);
        const int x0 = (int)clamp(floor(left + j * step_x), 0.0f, (float)(WIDTH - 1));
        const int x1 = (int)clamp(ceil(left + (j + 1) * step_x), 0.0f, (float)WIDTH);
        for (int y = y0; y < y1; ++y)
            for (int x = x0; x < x1; ++x) total += (float)IN0_LOAD(IN0_AT(image, source, y, x));
        const int count = max(y1 - y0, 0) * max(x1 - x0, 0);
        total = count ? total / count : 0;
    }
    WRITE(total, r, c, i, j);
}
