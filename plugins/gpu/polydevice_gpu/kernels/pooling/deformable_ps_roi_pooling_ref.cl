// deformable_ps_roi_pooling_ref: one work-item averages one moved bin of one output channel.
// NDRange: {bins across, bins down, channels * regions}; local size free.
// Layouts: any.   Types: floats; sums in float.
// Needs: IMAGES CHANNELS HEIGHT WIDTH BINS_Y BINS_X (equal), SCALE, SAMPLES_Y SAMPLES_X (per bin),
// MOVED (whether IN2 holds offsets), and with it DEVIATION, PARTS, PAIRS (of offsets), GROUP (channels
// that share one).
// A region that is not finite, or of an image that is not there, gives 0.
static inline float rounded(float v) { return trunc(v + copysign(0.5f, v)); }

KERNEL(deformable_ps_roi_pooling_ref) {
    const int j = get_global_id(0), i = get_global_id(1);
    const int c = get_global_id(2) % CHANNELS, r = get_global_id(2) / CHANNELS;
    float box[5];
    int usable = 1;
    for (int k = 0; k < 5; k++) {
        box[k] = IN1_LOAD(IN1_AT(r, k));
        usable = usable && fabs(box[k]) < 1e9f;
    }
    usable = usable && box[0] >= 0 && box[0] < IMAGES;
    float total = 0;
    int count = 0;
    if (usable) {
        const int image = (int)box[0], source = (c * BINS_Y + i) * BINS_X + j;
        const float start_x = rounded(box[1]) * SCALE - 0.5f;
        const float start_y = rounded(box[2]) * SCALE - 0.5f;
        const float extent_x = fmax((rounded(box[3]) + 1) * SCALE - 0.5f - start_x, 0.1f);
        const float extent_y = fmax((rounded(box[4]) + 1) * SCALE - 0.5f - start_y, 0.1f);
        const float step_x = extent_x / BINS_X, step_y = extent_y / BINS_Y;
        float left = start_x + j * step_x, top = start_y + i * step_y;
#if MOVED
        const int group = min(c / GROUP, PAIRS - 1), row = i * PARTS / BINS_Y, column = j * PARTS / BINS_X;
        left += IN2_LOAD(IN2_AT(r, group * 2, row, column)) * DEVIATION * extent_x;
        top += IN2_LOAD(IN2_AT(r, group * 2 + 1, row, column)) * DEVIATION * extent_y;
#endif
        for (int s = 0; s < SAMPLES_Y; s++) {
            const float y = top + s * step_y / SAMPLES_Y;
            if (!(y >= -0.5f && y <= HEIGHT - 0.5f)) continue;
            const float py = clamp(y, 0.0f, (float)(HEIGHT - 1));
            const int upper = (int)py, lower = min(upper + 1, HEIGHT - 1);
            const float dy = py - upper;
            for (int t = 0; t < SAMPLES_X; t++) {
                const float x = left + t * step_x / SAMPLES_X;
                if (!(x >= -0.5f && x <= WIDTH - 0.5f)) continue;
                const float px = clamp(x, 0.0f, (float)(WIDTH - 1));
                const int first = (int)px, second = min(first + 1, WIDTH - 1);
                const float dx = px - first;
                const float above = (float)IN0_LOAD(IN0_AT(image, source, upper, first)) * (1 - dx) +
                                    (float)IN0_LOAD(IN0_AT(image, source, upper, second)) * dx;
                const float below = (float)IN0_LOAD(IN0_AT(image, source, lower, first)) * (1 - dx) +
                                    (float)IN0_LOAD(IN0_AT(image, source, lower, second)) * dx;
                total += above * (1 - dy) + below * dy;
                count++;
            }
        }
    }
    WRITE(count ? total / count : 0, r, c, i, j);
}
