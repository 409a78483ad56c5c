// What video_faces.py does around the network, on the device: BlazeFace's answers to faces, and
// their outlines drawn into the planes of the NV12 image.
//
// A face is VALUES floats: score; left, top, right, bottom; six points x, y. In pixels of the image.

#define ANCHORS 896
#define NETWORK_SIDE 128.0f
#define VALUES 17
#define MOST_FACES 16
#define LEAST_SCORE 0.5f
#define SAME_FACE 0.3f      // intersection over union above which two boxes are one face
#define THICKNESS 4         // of the outline, in pixels

// Cells of a 16×16 grid, two anchors each, then of an 8×8 grid, six each; row by row.
float2 anchor_centre(int i) {
    const int cells = i < 512 ? 16 : 8;
    const int cell = i < 512 ? i / 2 : (i - 512) / 6;
    return (float2)(cell % cells + 0.5f, cell / cells + 0.5f) / cells;
}

float score_of(__global const float* scores, int i) { return 1 / (1 + exp(-scores[i])); }

// Left, top, right, bottom in parts of the image's side.
float4 box_of(__global const float* answers, int i) {
    const float4 offsets = vload4(0, answers + i * 16) / NETWORK_SIDE;
    const float2 centre = offsets.xy + anchor_centre(i);
    return (float4)(centre - offsets.zw / 2, centre + offsets.zw / 2);
}

float intersection_over_union(float4 a, float4 b) {
    const float2 common = fmax(fmin(a.zw, b.zw) - fmax(a.xy, b.xy), 0);
    const float2 size_a = a.zw - a.xy, size_b = b.zw - b.xy;
    const float both = common.x * common.y;
    return both / (size_a.x * size_a.y + size_b.x * size_b.y - both);
}

// One work-item per anchor. An anchor is a face when none that sees the same face has a higher
// score; the face's place is the mean of all that see it, weighted by score, as in BlazeFace's paper.
__kernel void find_faces(__global const float* scores, __global const float* answers,
                         __global int* count, __global float* faces, const float side) {
    const int i = get_global_id(0);
    const float score = score_of(scores, i);
    if (score < LEAST_SCORE) return;
    const float4 box = box_of(answers, i);
    float sum[VALUES] = {0};
    for (int j = 0; j < ANCHORS; ++j) {
        const float weight = score_of(scores, j);
        if (weight < LEAST_SCORE) continue;
        const float4 other = box_of(answers, j);
        if (intersection_over_union(box, other) < SAME_FACE) continue;
        if (weight > score || (weight == score && j < i)) return;
        sum[0] += weight;
        const float4 weighted = other * weight;
        sum[1] += weighted.x, sum[2] += weighted.y, sum[3] += weighted.z, sum[4] += weighted.w;
        const float2 centre = anchor_centre(j);
        for (int k = 0; k < 12; ++k) {
            const float along = answers[j * 16 + 4 + k] / NETWORK_SIDE + (k % 2 ? centre.y : centre.x);
            sum[5 + k] += along * weight;
        }
    }
    const int place = atomic_inc(count);
    if (place >= MOST_FACES) return;
    faces[place * VALUES] = score;
    for (int k = 1; k < VALUES; ++k) faces[place * VALUES + k] = sum[k] / sum[0] * side;
}

// Whether a pixel belongs to a face's outline, or to one of its points.
bool is_drawn(__global const float* face, float2 pixel) {
    const float2 from_top_left = pixel - vload2(0, face + 1);
    const float2 to_bottom_right = vload2(0, face + 3) - pixel;
    const float inside = fmin(fmin(from_top_left.x, from_top_left.y),
                              fmin(to_bottom_right.x, to_bottom_right.y));
    if (inside >= 0 && inside < THICKNESS) return true;
    for (int k = 0; k < 6; ++k)
        if (fast_distance(pixel, vload2(k, face + 5)) < THICKNESS) return true;
    return false;
}

// One work-item per four pixels, which share a colour: global size (width / 2, height / 2).
__kernel void draw_faces(__global const int* count, __global const float* faces,
                         __global uchar* y, __global uchar* uv, const int pitch) {
    const int column = get_global_id(0), row = get_global_id(1);
    const float2 centre = (float2)(2 * column + 1, 2 * row + 1);
    for (int n = 0; n < min(*count, MOST_FACES); ++n) {
        if (!is_drawn(faces + n * VALUES, centre)) continue;
        const int first = 2 * row * pitch + 2 * column;
        y[first] = y[first + 1] = y[first + pitch] = y[first + pitch + 1] = 145;
        uv[row * pitch + 2 * column] = 54;  // with Y = 145, BT.601's green
        uv[row * pitch + 2 * column + 1] = 34;
        return;
    }
}
