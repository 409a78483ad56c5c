// roi_pooling_ref: one work-item computes one bin of one region and channel.
// NDRange: {bins across, bins down, channels * regions}; local size free.
// Layouts: any.   Types: floats.
// Needs: IMAGES CHANNELS HEIGHT WIDTH BINS_Y BINS_X, SCALE, BILINEAR (a sample at each bin's
//        place from corner to corner, in place of the maximum of the bin).
// A region that is not finite, or of an image that is not there, gives 0; so does an empty bin.
float roi_round(float x) { return trunc(x + copysign(0.5f, x)); }

void roi_bin(float from, float to, int bins, int bin, int size, int* low, int* high) {
    const float start = roi_round(from), end = roi_round(to);
    const float width = fmax(end - start + 1, 1.0f) / bins;
    *low = (int)clamp(floor(bin * width) + start, 0.0f, (float)size);
    *high = (int)clamp(ceil((bin + 1) * width) + start, 0.0f, (float)size);
}

float roi_place(float from, float to, int bins, int bin, int size) {
    const float last = size - 1;
    if (bins == 1) return 0.5f * (from + to) * last;
    if (bin == bins - 1) return last * to;
    return bin * ((to - from) * last / (bins - 1)) + from * last;
}

KERNEL(roi_pooling_ref) {
    const int j = get_global_id(0), i = get_global_id(1);
    const int c = get_global_id(2) % CHANNELS, r = get_global_id(2) / CHANNELS;
    const float number = IN1_LOAD(IN1_AT(r, 0));
    float box[4];
    int usable = number >= 0 && number < IMAGES;
    for (int k = 0; k < 4; ++k) {
        box[k] = IN1_LOAD(IN1_AT(r, k + 1));
        usable = usable && fabs(box[k]) < 1e9f;
    }
    float result = 0;
    if (usable && BILINEAR) {
        const int image = (int)number;
        const float y = roi_place(box[1], box[3], BINS_Y, i, HEIGHT);
        const float x = roi_place(box[0], box[2], BINS_X, j, WIDTH);
        if (y >= 0 && y <= HEIGHT - 1 && x >= 0 && x <= WIDTH - 1) {
            const int top = (int)y, left = (int)x;
            const int bottom = min(top + 1, HEIGHT - 1), right = min(left + 1, WIDTH - 1);
            const float dy = y - top, dx = x - left;
            const float upper = mix((float)IN0_LOAD(IN0_AT(image, c, top, left)),
                                    (float)IN0_LOAD(IN0_AT(image, c, top, right)), dx);
            const float lower = mix((float)IN0_LOAD(IN0_AT(image, c, bottom, left)),
                                    (float)IN0_LOAD(IN0_AT(image, c, bottom, right)), dx);
            result = mix(upper, lower, dy);
        }
    } else if (usable) {
        const int image = (int)number;
        int top, bottom, left, right;
        roi_bin(box[1] * SCALE, box[3] * SCALE, BINS_Y, i, HEIGHT, &top, &bottom);
        roi_bin(box[0] * SCALE, box[2] * SCALE, BINS_X, j, WIDTH, &left, &right);
        if (bottom > top && right > left) result = -INFINITY;
        for (int y = top; y < bottom; ++y)
            for (int x = left; x < right; ++x)
                result = fmax(result, (float)IN0_LOAD(IN0_AT(image, c, y, x)));
    }
    WRITE(result, r, c, i, j);
}
