// measured_gather_ref: a work-group fetches a row of a table, which an index chooses, and measures it as it
// is stored behind the epilogue: its mean and the squares about it.
// NDRange: {ITEMS, ROWS}; local size {ITEMS, 1}.
// Layouts: rows in memory order.   Types: half, float; integer indices; moments in float.
// Needs: ITEMS (a power of two), AXIS (rows of the table), NEGATIVE, COUNT (terms of a row, a multiple
// of 4), HELD (fours of a work-item).
// An index outside the table gives 0; with NEGATIVE one below 0 counts from the end.
#include "include/measured.cl"
// The sum of all work-items' numbers, which each of them gets.
#define OVER_GROUP(x)                                                                       \
    shares[item] = x;                                                                       \
    barrier(CLK_LOCAL_MEM_FENCE);                                                           \
    for (int others = ITEMS / 2; others > 0; others /= 2) {                                 \
        if (item < others) shares[item] += shares[item + others];                           \
        barrier(CLK_LOCAL_MEM_FENCE);                                                       \
    }                                                                                       \
    x = shares[0];                                                                          \
    barrier(CLK_LOCAL_MEM_FENCE);

KERNEL(measured_gather_ref) {
    LOCAL_ARRAY(float, shares, ITEMS, , 16);
    const int item = get_local_id(0), row = get_global_id(1);
    long found = IN1_LOAD(IN1_AT(row));
    if (NEGATIVE && found < 0) found += AXIS;
    const bool inside = found >= 0 && found < AXIS;
    float4 held[HELD];
    float mean = 0.0f, squares = 0.0f;
    #pragma unroll
    for (int h = 0; h < HELD; h++) {
        const int n = (h * ITEMS + item) * 4;
        held[h] = (float4)(0.0f);
        if (n < COUNT) {
            float4 four = inside ? IN0_LOAD4(IN0_AT((int)found, n)) : (float4)(0.0f);
            WRITE_MEASURED(four, row, n)
            held[h] = four;
            mean += four.s0 + four.s1 + (four.s2 + four.s3);
        }
    }
    OVER_GROUP(mean)
    mean /= COUNT;
    #pragma unroll
    for (int h = 0; h < HELD; h++)
        if ((h * ITEMS + item) * 4 < COUNT) {
            const float4 off = held[h] - mean;
            squares += dot(off, off);
        }
    OVER_GROUP(squares)
    if (item == 0) {
        OUT1_STORE(OUT1_AT(row, 0, 0), mean);
        OUT1_STORE(OUT1_AT(row, 0, 1), squares);
    }
}
