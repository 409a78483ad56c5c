// roi_align_rotated_ref: one work-item averages one bin of one turned region and channel.
// NDRange: {bins across, bins down, channels * regions}; local size free.
// Layouts: any.   Types: floats; sums in float.
// Needs: IMAGES CHANNELS HEIGHT WIDTH BINS_Y BINS_X, SCALE, RATIO (samples per bin and axis, 0: one
// per element), TURN (1, or -1 for clockwise).
// A region that is not finite, of an image that is not there, or with far more samples than the
// feature map has elements, gives 0.
KERNEL(roi_align_rotated_ref) {
    const int j = get_global_id(0), i = get_global_id(1);
    const int c = get_global_id(2) % CHANNELS, r = get_global_id(2) / CHANNELS;
    const long image = IN2_LOAD(IN2_AT(r));
    float box[5];
    int usable = image >= 0 && image < IMAGES;
    for (int k = 0; k < 5; k++) {
        box[k] = IN1_LOAD(IN1_AT(r, k));
        usable = usable && fabs(box[k]) < 1e9f;
    }
    float total = 0;
    const float bin_x = box[2] * SCALE / BINS_X, bin_y = box[3] * SCALE / BINS_Y;
    const float across = RATIO ? RATIO : ceil(bin_x), down = RATIO ? RATIO : ceil(bin_y);
    usable = usable && across > 0 && down > 0;
    usable = usable && across * down <= 4.0f * (HEIGHT + 2) * (WIDTH + 2) + 4096;
    if (usable) {
        const float angle = TURN * box[4], cosine = cos(angle), sine = sin(angle);
        const float centre_x = box[0] * SCALE - 0.5f, centre_y = box[1] * SCALE - 0.5f;
        for (int s = 0; s < (int)down; s++) {
            const float own_y = -0.5f * box[3] * SCALE + i * bin_y + (s + 0.5f) / down * bin_y;
            for (int t = 0; t < (int)across; t++) {
                const float own_x = -0.5f * box[2] * SCALE + j * bin_x + (t + 0.5f) / across * bin_x;
                const float y = own_y * cosine - own_x * sine + centre_y;
                const float x = own_y * sine + own_x * cosine + centre_x;
                if (!(y >= -1 && y <= HEIGHT && x >= -1 && x <= WIDTH)) continue;
                const float py = clamp(y, 0.0f, (float)(HEIGHT - 1));
                const float px = clamp(x, 0.0f, (float)(WIDTH - 1));
                const int top = (int)py, bottom = min(top + 1, HEIGHT - 1);
                const int left = (int)px, right = min(left + 1, WIDTH - 1);
                const float dy = py - top, dx = px - left;
                const float upper = (float)IN0_LOAD(IN0_AT(image, c, top, left)) * (1 - dx) +
                                    (float)IN0_LOAD(IN0_AT(image, c, top, right)) * dx;
                const float lower = (float)IN0_LOAD(IN0_AT(image, c, bottom, left)) * (1 - dx) +
                                    (float)IN0_LOAD(IN0_AT(image, c, bottom, right)) * dx;
                total += upper * (1 - dy) + lower * dy;
            }
        }
        total /= across * down;
    }
    WRITE(total, r, c, i, j);
}
