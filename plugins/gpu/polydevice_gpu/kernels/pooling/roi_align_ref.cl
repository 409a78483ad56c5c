// roi_align_ref: one work-item samples one bin of one region and channel.
// NDRange: {bins across, bins down, channels * regions}; local size free.
// Layouts: any.   Types: floats; sums in float.
// Needs: IMAGES CHANNELS HEIGHT WIDTH BINS_Y BINS_X, SCALE BEFORE BEHIND (coordinates become
//        (c + BEFORE) * SCALE - BEHIND), RATIO (samples per bin and axis, 0: one per element),
//        AT_LEAST_ONE (regions are not smaller), MAXIMUM, OF_PARTS (of the four weighted elements).
// A region that is not finite, or of an image that is not there, gives 0.
typedef struct { float start, distance; int per_bin, first, last; } roi_axis;

roi_axis roi_axis_of(float start, float end, int bins, int bin, int size) {
    roi_axis a;
    float extent = end - start;
    if (AT_LEAST_ONE) extent = fmax(extent, 1.0f);
    const float width = extent / bins;
    a.start = start;
    a.per_bin = RATIO ? RATIO : (int)clamp(ceil(width), 0.0f, 1e9f);
    a.distance = width / max(a.per_bin, 1);
    a.first = 0;
    a.last = a.per_bin - 1;
    if (!RATIO && a.last >= 0) {
        // Of many samples only those near the image are visited.
        const float before = (float)bin * a.per_bin;
        const float low = (-1.0f - start) / a.distance - 1.5f - before;
        const float high = (size - start) / a.distance + 0.5f - before;
        a.first = (int)clamp(low, 0.0f, (float)a.last);
        a.last = (int)clamp(high, -1.0f, (float)a.last);
    }
    return a;
}

KERNEL(roi_align_ref) {
    const int j = get_global_id(0), i = get_global_id(1);
    const int c = get_global_id(2) % CHANNELS, r = get_global_id(2) / CHANNELS;
    const long image = IN2_LOAD(IN2_AT(r));
    float box[4];
    int usable = image >= 0 && image < IMAGES;
    for (int k = 0; k < 4; ++k) {
        box[k] = ((float)IN1_LOAD(IN1_AT(r, k)) + BEFORE) * SCALE - BEHIND;
        usable = usable && fabs(box[k]) < 1e9f;
    }
    float total = 0, best = -INFINITY;
    int outside = 0;
    if (usable) {
        const roi_axis across = roi_axis_of(box[0], box[2], BINS_X, j, WIDTH);
        const roi_axis down = roi_axis_of(box[1], box[3], BINS_Y, i, HEIGHT);
        outside = across.last - across.first + 1 != across.per_bin
               || down.last - down.first + 1 != down.per_bin;
        for (int s = down.first; s <= down.last; ++s) {
            const float y = down.start + ((float)i * down.per_bin + s + 0.5f) * down.distance;
            if (!(y >= -1 && y <= HEIGHT)) { outside = 1; continue; }
            const float py = clamp(y, 0.0f, (float)(HEIGHT - 1));
            const int top = (int)py, bottom = min(top + 1, HEIGHT - 1);
            const float dy = py - top;
            for (int t = across.first; t <= across.last; ++t) {
                const float x = across.start
                              + ((float)j * across.per_bin + t + 0.5f) * across.distance;
                if (!(x >= -1 && x <= WIDTH)) { outside = 1; continue; }
                const float px = clamp(x, 0.0f, (float)(WIDTH - 1));
                const int left = (int)px, right = min(left + 1, WIDTH - 1);
                const float dx = px - left;
                const float a = (float)IN0_LOAD(IN0_AT(image, c, top, left)) * ((1 - dy) * (1 - dx));
                const float b = (float)IN0_LOAD(IN0_AT(image, c, top, right)) * ((1 - dy) * dx);
                const float d = (float)IN0_LOAD(IN0_AT(image, c, bottom, left)) * (dy * (1 - dx));
                const float e = (float)IN0_LOAD(IN0_AT(image, c, bottom, right)) * (dy * dx);
                total += a + b + d + e;
                best = fmax(best, OF_PARTS ? fmax(fmax(a, b), fmax(d, e)) : a + b + d + e);
            }
        }
        if (!MAXIMUM) {
            const float count = (float)across.per_bin * down.per_bin;
            total = count > 0 ? total / count : 0;
        } else if (OF_PARTS && !outside) {
            total = best == -INFINITY ? 0 : best;
        } else {
            total = fmax(best, 0.0f);
        }
    }
    WRITE(total, r, c, i, j);
}
