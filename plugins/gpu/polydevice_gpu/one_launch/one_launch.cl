// one_launch: every work-group walks the same stages, in each of which it takes, in turn with the
// others, the work-groups that a launch of that stage would have had; between stages that depend on
// each other all meet.
// NDRange: {GROUPS * LOCAL_SIZE}; every group must be running at the same time unless there is one.
// Needs: LOCAL_SIZE, LOCAL_BYTES (those of the function that takes most), PORTS, PORT_PARAMETERS and
// PORT_OF (buffers that may be others in each launch), STAGES (the switch over functions), MEETING
// (0: there is one group; 1: groups meet by atomics; 2: by PTX, which states the order of memory).
// records: for each stage FIELDS words of 64 bits (its function, length, whether all groups meet before
// it, and whether the work-items of each do; groups; those in x and y; rotation, less than there are
// places for groups; what the next one reads of weights, and how many lines that are), then its arguments: a number; the address of a buffer, or
// the number of a port; the place of local memory.
// times: where `timed`, when each stage began, and when the last one ended; then all stages are apart.
// state: groups that arrived, groups that left, the stage that was waited for in vain plus one.
//
// Order: what a group wrote before a meeting every group reads after it. Its work-items wait for
// each other, then one of them releases for all with a fence of the device's scope, and acquires the
// same way, which also drops what the processor's own cache (L1) holds.
#define FIELDS 6
#define GAVE_UP 0x80000000u
#define LINE 128
#define LANES 32
#define STAGE_POINTER(word) ((word) < PORTS ? PORT_OF(word) : (word))
#define EVERYTHING (CLK_GLOBAL_MEM_FENCE | CLK_LOCAL_MEM_FENCE)

#if MEETING == 2
// Adding releases what all work-items of the group wrote before the barrier in front of it.
#define ARRIVE(at) asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(at) : "memory")
// Looking acquires: a fence behind would wait for writes once more.
#define LOOK(seen, at)                                                                            \
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(seen) : "l"(at) : "memory")
#define ACQUIRE()
#define NOW(time) asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(time))
// A barrier after which every work-item knows what one of them said.
#define TELL(gave_up)                                                                             \
    asm volatile("{\n.reg .pred p, q;\nsetp.ne.u32 p, %0, 0;\nbar.red.or.pred q, 0, p;\n"         \
                 "selp.u32 %0, 1, 0, q;\n}" : "+r"(gave_up) : : "memory");
#define FETCH_AHEAD(address) asm volatile("prefetch.global.L2 [%0];" ::"l"(address))
// The lanes of a warp hold a stage's words, which they read while the stage before it runs, and give
// them to each other.
#define HOLD(held, first)                                                                         \
    held[0] = records[(first) + thread % LANES];                                                  \
    held[1] = records[(first) + LANES + thread % LANES];
#define STAGE_WORD(i) given(words_held[(i) / LANES], (i) % LANES)
#define STAGE_LOW(i) given_low(words_held[(i) / LANES], (i) % LANES)
static inline ulong given(const ulong held, const uint lane) {
    ulong word;
    asm volatile("{\n.reg .b32 low, high;\nmov.b64 {low, high}, %1;\n"
                 "shfl.sync.idx.b32 low, low, %2, 31, 0xffffffff;\n"
                 "shfl.sync.idx.b32 high, high, %2, 31, 0xffffffff;\n"
                 "mov.b64 %0, {low, high};\n}" : "=l"(word) : "l"(held), "r"(lane));
    return word;
}
// The lower half of a word: a processor exchanges a warp's 32 bits in each cycle.
static inline uint given_low(const ulong held, const uint lane) {
    uint low;
    asm volatile("shfl.sync.idx.b32 %0, %1, %2, 31, 0xffffffff;"
                 : "=r"(low) : "r"((uint)held), "r"(lane));
    return low;
}
#else
#define ARRIVE(at)                                                                                \
    mem_fence(CLK_GLOBAL_MEM_FENCE);                                                              \
    atomic_inc(at)
#define LOOK(seen, at) seen = atomic_or(at, 0)
#define ACQUIRE() mem_fence(CLK_GLOBAL_MEM_FENCE)
#define NOW(time) time = clock += 20000  // at least as long as 256 looks take
#define TELL(gave_up)                                                                             \
    if (thread == 0) *(__local uint*)memory = gave_up;  /* no function is using it */             \
    barrier(EVERYTHING);                                                                          \
    gave_up = *(__local uint*)memory;                                                             \
    barrier(CLK_LOCAL_MEM_FENCE);
#define FETCH_AHEAD(address)
#define HOLD(held, first)
#define STAGE_WORD(i) records[at + (i)]
#define STAGE_LOW(i) (uint)records[at + (i)]
#endif

#if MEETING
// Return whether the time was up before all groups arrived. For the first work-item.
static inline uint await_all(volatile __global uint* state, const uint target, const int at,
                             const ulong limit_ns) {
    uint seen;
    ulong begin, now, clock = 0;
    NOW(begin);
    for (uint turn = 1;; turn++) {
        LOOK(seen, state);
        if ((seen & GAVE_UP) || seen >= target) break;
        if (turn % 256 == 0) {
            NOW(now);
            if (now - begin > limit_ns) {
                state[2] = at + 1;
                seen = atomic_or(state, GAVE_UP) | GAVE_UP;
                break;
            }
        }
    }
    ACQUIRE();
    return seen & GAVE_UP;
}
// A meeting in two parts: what needs nothing of other groups is done between.
#define ARRIVE_AT_MEETING                                                                         \
    {                                                                                             \
        barrier(EVERYTHING);                                                                      \
        met++;                                                                                    \
        if (thread == 0) { ARRIVE(state); }                                                       \
    }
#define END_MEETING                                                                               \
    {                                                                                             \
        uint gave_up = 0;                                                                         \
        if (thread == 0) gave_up = await_all(state, met * resident, at, limit_ns);                \
        TELL(gave_up)                                                                             \
        if (gave_up) return;                                                                      \
    }
#else
#define ARRIVE_AT_MEETING barrier(EVERYTHING);
#define END_MEETING
#endif
#if MEETING
#define NOTE_TIME(number)                                                                         \
    if (timed && thread == 0 && mine == 0) {                                                      \
        ulong now, clock = 0;                                                                     \
        NOW(now);                                                                                 \
        times[number] = now;                                                                      \
    }
#else
#define NOTE_TIME(number)
#endif
#define BEGIN_STAGE                                                                               \
    if (meets) { END_MEETING }                                                                    \
    NOTE_TIME(number)
#define GROUP_OF(v)                                                                               \
    (uint3)((v) % groups.x, (v) / groups.x % groups.y, (v) / groups.x / groups.y)
// Groups of `items` work-items, `slots` of them side by side; neighbours in a warp are neighbours,
// and else they are spread over the processors first, from behind those that stages beside this one
// keep busy.
#define STAGE(items, slots, together, slot_bytes, call, after)                                    \
    {                                                                                             \
        const uint slot = thread / (items), item = thread % (items);                              \
        const uint places = resident * ((slots) / (together));                                    \
        const uint behind = slot / (together) * resident + mine;                                  \
        const uint place = behind < rotation ? behind + places - rotation : behind - rotation;    \
        const uint first = place * (together) + slot % (together);                                \
        __local uchar* slot_memory = memory + slot * (slot_bytes);                                \
        uint3 group = GROUP_OF(first);                                                            \
        BEGIN_STAGE                                                                               \
        if (slot < (slots))                                                                       \
            for (uint v = first; v < count; group = GROUP_OF(v)) {                                \
                call;                                                                             \
                after;                                                                            \
                if ((v += resident * (slots)) >= count) break;                                    \
            }                                                                                     \
        break;                                                                                    \
    }

__kernel __attribute__((reqd_work_group_size(LOCAL_SIZE, 1, 1)))
void one_launch(__global const ulong* restrict records, const int words, __global uint* state,
                const ulong limit_ns, const int timed, __global ulong* times PORT_PARAMETERS) {
    __local uchar memory[LOCAL_BYTES] __attribute__((aligned(1024)));
    const uint thread = get_local_id(0), mine = get_group_id(0), resident = get_num_groups(0);
    uint met = 0;
    int number = 0, length;
    ulong words_held[2] = {0}, words_next[2] = {0};
    HOLD(words_next, 0)
    for (int at = 0; at < words; at += length) {
        // All that is known before the others arrived is read before.
        words_held[0] = words_next[0], words_held[1] = words_next[1];
        const ulong head = STAGE_WORD(0);
        const uint body = (uint)head & 0xffff, meets = (head >> 32 & 1) || timed;
        if (meets) {
            ARRIVE_AT_MEETING
        } else if (head >> 33) {
            barrier(EVERYTHING);  // others still use local memory otherwise
        }
        length = (int)(head >> 16 & 0xffff);
        HOLD(words_next, at + length)
        const ulong sizes = STAGE_WORD(2), ahead = STAGE_WORD(4);
        const uint count = STAGE_LOW(1), rotation = STAGE_LOW(3), lines = STAGE_LOW(5);
        const uint3 groups = (uint3)((uint)sizes, (uint)(sizes >> 32), 1);
        for (uint line = mine * LOCAL_SIZE + thread; line < lines; line += resident * LOCAL_SIZE)
            FETCH_AHEAD(ahead + line * LINE);
        switch (body) {
            STAGES
            default: BEGIN_STAGE break;
        }
        number++;
    }
#if MEETING
    if (timed) {
        const int at = words;
        ARRIVE_AT_MEETING
        END_MEETING
        NOTE_TIME(number)
    }
    // The last one leaves everything as the next launch wants it.
    if (thread == 0 && atomic_inc(state + 1) == resident - 1) state[0] = state[1] = 0;
#endif
}
