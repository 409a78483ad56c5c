// Which part of which row a work-item works on, how the lanes of a row join what they have, and
// what is stored once a row is known.
// NDRange: {LANES * ceil(ROWS / TOGETHER), parts}, local size {LANES, 1}; {ROWS, parts} for
// LANES = 1.
// Needs: SUM_T (type of what is gathered), LANES (a power of two), TOGETHER (neighbouring rows
// of a group; divides LANES), ROWS, COUNT (terms of a row), LENGTH (of a part), WIDTH (terms in
// flight), ELEMENTWISE; SCALE(a, b), RESULT(v) and STORED (elements in flight) if so, FINISH(a)
// if not.
#define LANES_OF_ROW (LANES / TOGETHER)
#define PLUS(a, v) ((a) + (v))
#if LANES > 1
#define DECLARE_ROW                                                                               \
    LOCAL_ARRAY(SUM_T, shared, LANES, , 16);                                                      \
    const int id = get_local_id(0), lane = id / TOGETHER;                                         \
    const int place = get_group_id(0) * TOGETHER + id % TOGETHER, row = min(place, ROWS - 1);     \
    const int stores = place < ROWS;                                                              \
    DECLARE_PART
#define OVER_LANES(a, JOIN)                                                                       \
    shared[id] = a;                                                                               \
    for (int half_way = LANES_OF_ROW / 2; half_way > 0; half_way /= 2) {                          \
        barrier(CLK_LOCAL_MEM_FENCE);                                                             \
        if (lane < half_way) {                                                                    \
            const SUM_T v = shared[id + half_way * TOGETHER];                                     \
            a = JOIN(a, v);                                                                       \
            shared[id] = a;                                                                       \
        }                                                                                         \
    }                                                                                             \
    barrier(CLK_LOCAL_MEM_FENCE);                                                                 \
    a = shared[id % TOGETHER];                                                                    \
    barrier(CLK_LOCAL_MEM_FENCE);
#else
#define DECLARE_ROW                                                                               \
    const int lane = 0, row = get_global_id(0), stores = 1;                                       \
    if (row >= ROWS) return;                                                                      \
    DECLARE_PART
#define OVER_LANES(a, JOIN)
#endif
#define DECLARE_PART                                                                              \
    const int part = get_global_id(1), begin = part * LENGTH;                                     \
    const int end = begin + min(LENGTH, COUNT - begin);

#if ELEMENTWISE
#define STORE_ROW(first, second)                                                                  \
    const SUM_T scale = SCALE(first, second);                                                     \
    int i = begin + lane;                                                                         \
    for (; i < end - (STORED - 1) * LANES_OF_ROW; i += STORED * LANES_OF_ROW) {                   \
        SUM_T own[STORED];                                                                        \
        _Pragma("unroll") for (int w = 0; w < STORED; w++) {                                      \
            const SUM_T v = IN0_LOAD(IN0_AT(row, i + w * LANES_OF_ROW));                          \
            own[w] = RESULT(v);                                                                   \
        }                                                                                         \
        _Pragma("unroll") for (int w = 0; w < STORED; w++)                                        \
            if (stores) WRITE(own[w], row, i + w * LANES_OF_ROW);                                 \
    }                                                                                             \
    for (; i < end; i += LANES_OF_ROW) {                                                          \
        const SUM_T v = IN0_LOAD(IN0_AT(row, i));                                                 \
        if (stores) WRITE((RESULT(v)), row, i);                                                   \
    }
#else
#define STORE_ROW(first, second)                                                                  \
    if (stores && lane == 0) WRITE((FINISH(first)), row);
#endif
