// The parts of a product's sums, added up by the work-group that comes last at a tile, in the order
// of the parts, so that the result is the same every time. Needs PTX: no fence of OpenCL 1.2 reaches
// beyond a work-group.
// Needs: SPLIT, ROWS, COLUMNS; PARTS as [part, row, column] of float; ARRIVALS, a counter for each
// tile, a multiple of SPLIT between launches.
#define PART_AT(part, m, n) (parts + ((size_t)(part) * ROWS + (m)) * COLUMNS + (n))
// Reads pass by the processor's own cache, which may hold what was there before.
#define READ_PART(to, from)                                                                       \
    asm volatile("ld.global.cg.f32 %0, [%1];" : "=f"(to) : "l"(from) : "memory")
#define READ_PART2(to, from)                                                                      \
    asm volatile("ld.global.cg.v2.f32 {%0,%1}, [%2];"                                             \
                 : "=f"((to).s0), "=f"((to).s1) : "l"(from) : "memory")
#define READ_PART4(to, from)                                                                      \
    asm volatile("ld.global.cg.v4.f32 {%0,%1,%2,%3}, [%4];"                                       \
                 : "=f"((to).s0), "=f"((to).s1), "=f"((to).s2), "=f"((to).s3)                     \
                 : "l"(from) : "memory")
// Vectors of four columns that are not aligned, and of which the last ones may be outside.
#define WRITE_PART_LANES(v, part, m, n)                                                           \
    float lanes[4];                                                                               \
    vstore4(v, 0, lanes);                                                                         \
    _Pragma("unroll") for (int lane = 0; lane < 4; lane++)                                        \
        if (n + lane < COLUMNS) *PART_AT(part, m, n + lane) = lanes[lane];
#define READ_PART_LANES(to, part, m, n)                                                           \
    float lanes[4];                                                                               \
    vstore4((float4)(0.0f), 0, lanes);                                                            \
    _Pragma("unroll") for (int lane = 0; lane < 4; lane++)                                        \
        if (n + lane < COLUMNS) READ_PART(lanes[lane], PART_AT(part, m, n + lane));               \
    to = vload4(0, lanes);
#define ADD_PART_LANES(sum, part, m, n)                                                           \
    float4 read;                                                                                  \
    READ_PART_LANES(read, part, m, n)                                                             \
    sum += read;
#define FENCE() asm volatile("membar.gl;" ::: "memory")
// Return from all work-groups but the last one at this tile; `arrived` is an uint in local memory.
#define LEAVE_UNLESS_LAST(arrived)                                                                \
    FENCE();                                                                                      \
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);                                          \
    if (get_local_id(0) == 0)                                                                     \
        arrived = atomic_inc(arrivals + get_group_id(1) * get_num_groups(0) + get_group_id(0));   \
    barrier(CLK_LOCAL_MEM_FENCE);                                                                 \
    if (arrived % SPLIT != SPLIT - 1) return;                                                     \
    FENCE();
