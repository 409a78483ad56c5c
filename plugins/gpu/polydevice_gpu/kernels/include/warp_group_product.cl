// A product on the matrix units of warp groups, which take both factors from local memory: a
// work-group computes BM rows (pixels) by BN columns (channels).
// Needs: as rows.cl and arrivals.cl, COLUMNS, STEPS (of BK terms, per part), TERMS, BM (64 rows, or
// with TALL 2 128, for each warp group), BN (64, 128, 192 or 256), BK (terms of 64 or 128 bytes), STAGES, SPLIT,
// LATE (a step's products are awaited one step later, so that the units never wait for a barrier); FILTER as
// [column, tap, channel], in the order of `for_eights` where WIDE. PRODUCT, the kernel's name;
// ELEMENT, ELEMENT_BYTES and WEIGHT of the factors; TERMS_AND_TYPES and HOW of the instruction;
// SUM, SUM2, SUM8, SUM_IN (a register of it), FROM_PART4 (four sums of a part), BEGIN (what is added
// to eight sums in the end); COPY_INSIDE (16 bytes, or what stands for those outside); TOGETHER
// (results are made before the first is stored).
// NVIDIA's compiler aims below this instruction: see cl/programs/warp_groups.py for "//@warp_group".
#include "include/arrivals.cl"
#include "include/rows.cl"
#define THREADS (2 * BM / TALL)
#ifndef LATE
#define LATE 0
#endif
// How many steps' products may be under way when `MULTIPLY` ends.
#if LATE
#define PENDING "1"
#else
#define PENDING "0"
#endif
#define ROW_BYTES (BK * ELEMENT_BYTES)
#define PIECES (ROW_BYTES / 16)
#define PER_PIECE (16 / ELEMENT_BYTES)
#define LOADS_A (BM * PIECES / THREADS)
#define LOADS_B (BN * PIECES / THREADS)
#define ROWS_APART (THREADS / PIECES)
#define STAGE_BYTES ((BM + BN) * ROW_BYTES)
// 16 bytes from global to local memory behind the program's back; zeros where `bytes` is 0.
#define COPY(to, from, bytes)                                                               \
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes))
#define CLOSE_STAGE() asm volatile("cp.async.commit_group;")
#define AWAIT(n) asm volatile("cp.async.wait_group %0;" ::"n"(n))
// Pieces of 16 bytes are exchanged by row as the instruction's own swizzle wants them.
#if ROW_BYTES == 128
#define PLACE(row, piece) ((row) * ROW_BYTES + (((piece) ^ ((row) & 7)) << 4))
#define SWIZZLE 1ul
#else
#define PLACE(row, piece) ((row) * ROW_BYTES + (((piece) ^ (((row) >> 1) & 3)) << 4))
#define SWIZZLE 2ul
#endif
// Where a matrix lies, as the instruction wants to be told: its swizzle, the distance between groups
// of eight rows, and its address.
#define MATRIX(at)                                                                          \
    (SWIZZLE << 62 | (ulong)(8 * ROW_BYTES >> 4) << 32 | 1ul << 16 | (ulong)(((at) & 0x3FFFF) >> 4))

#define SUMS (BN / 2)
#define EIGHT(i)                                                                            \
    SUM_IN(sum[i]), SUM_IN(sum[(i) + 1]), SUM_IN(sum[(i) + 2]), SUM_IN(sum[(i) + 3]),       \
        SUM_IN(sum[(i) + 4]), SUM_IN(sum[(i) + 5]), SUM_IN(sum[(i) + 6]), SUM_IN(sum[(i) + 7])
// Registers by 32: their names in the instruction, and what is bound to them.
#define NAMES_FROM_0                                                                        \
    "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"                                \
    "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31"
#define NAMES_FROM_32                                                                       \
    "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,"                      \
    "%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"
#define NAMES_FROM_64                                                                       \
    "%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79,"                      \
    "%80,%81,%82,%83,%84,%85,%86,%87,%88,%89,%90,%91,%92,%93,%94,%95"
#define NAMES_FROM_96                                                                       \
    "%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106,%107,%108,%109,%110,%111,"          \
    "%112,%113,%114,%115,%116,%117,%118,%119,%120,%121,%122,%123,%124,%125,%126,%127"
#define NAMES_FROM_128                                                                      \
    "%128,%129,%130,%131,%132,%133,%134,%135,%136,%137,%138,%139,%140,%141,%142,%143,"      \
    "%144,%145,%146,%147,%148,%149,%150,%151,%152,%153,%154,%155,%156,%157,%158,%159"
#define NAMES_FROM_160                                                                      \
    "%160,%161,%162,%163,%164,%165,%166,%167,%168,%169,%170,%171,%172,%173,%174,%175,"      \
    "%176,%177,%178,%179,%180,%181,%182,%183,%184,%185,%186,%187,%188,%189,%190,%191"
#define BOUND_32(i) EIGHT(i), EIGHT(i + 8), EIGHT(i + 16), EIGHT(i + 24)
#if BN == 64
#define SHAPE "m64n64"
#define NAMES NAMES_FROM_0
#define BOUND BOUND_32(0)
#define FACTOR_A "%32"
#define FACTOR_B "%33"
#elif BN == 128 && TALL == 2
#define SHAPE "m64n128"
#define NAMES NAMES_FROM_0 "," NAMES_FROM_32
#define NAMES_BELOW NAMES_FROM_64 "," NAMES_FROM_96
#define BOUND BOUND_32(0), BOUND_32(32), BOUND_32(64), BOUND_32(96)
#define FACTOR_A "%128"
#define FACTOR_B "%129"
#elif BN == 128
#define SHAPE "m64n128"
#define NAMES NAMES_FROM_0 "," NAMES_FROM_32
#define BOUND BOUND_32(0), BOUND_32(32)
#define FACTOR_A "%64"
#define FACTOR_B "%65"
#elif BN == 192 && TALL == 2
#define SHAPE "m64n192"
#define NAMES NAMES_FROM_0 "," NAMES_FROM_32 "," NAMES_FROM_64
#define NAMES_BELOW NAMES_FROM_96 "," NAMES_FROM_128 "," NAMES_FROM_160
#define BOUND BOUND_32(0), BOUND_32(32), BOUND_32(64), BOUND_32(96), BOUND_32(128), BOUND_32(160)
#define FACTOR_A "%192"
#define FACTOR_B "%193"
#elif BN == 192
#define SHAPE "m64n192"
#define NAMES NAMES_FROM_0 "," NAMES_FROM_32 "," NAMES_FROM_64
#define BOUND BOUND_32(0), BOUND_32(32), BOUND_32(64)
#define FACTOR_A "%96"
#define FACTOR_B "%97"
#else
#define SHAPE "m64n256"
#define NAMES NAMES_FROM_0 "," NAMES_FROM_32 "," NAMES_FROM_64 "," NAMES_FROM_96
#define BOUND BOUND_32(0), BOUND_32(32), BOUND_32(64), BOUND_32(96)
#define FACTOR_A "%128"
#define FACTOR_B "%129"
#endif
// The terms of an instruction are 32 bytes, in units of 16.
#define PRODUCT_OF(names)                                                                   \
    "//@warp_group wgmma.mma_async.sync.aligned." SHAPE TERMS_AND_TYPES " {" names          \
    "}, at_a, at_b, " HOW ";\n"
#define INSTRUCTION(units)                                                                  \
    "add.s64 at_a, " FACTOR_A ", " units "; add.s64 at_b, " FACTOR_B ", " units ";\n"       \
    PRODUCT_OF(NAMES) BELOW
// A warp group has 64 rows, or 64 more below them.
#if TALL == 2
#if ROW_BYTES == 128
#define BELOW "add.s64 at_a, at_a, 512;\n" PRODUCT_OF(NAMES_BELOW)
#else
#define BELOW "add.s64 at_a, at_a, 256;\n" PRODUCT_OF(NAMES_BELOW)
#endif
#else
#define BELOW
#endif
#if ROW_BYTES == 128
#define ALL_TERMS INSTRUCTION("0") INSTRUCTION("2") INSTRUCTION("4") INSTRUCTION("6")
#else
#define ALL_TERMS INSTRUCTION("0") INSTRUCTION("2")
#endif
// One block, so that no register is moved between its instructions.
#define MULTIPLY(a, b)                                                                      \
    asm volatile("{ .reg .b64 at_a, at_b;\n"                                                \
                 "//@warp_group wgmma.fence.sync.aligned;\n" ALL_TERMS                      \
                 "//@warp_group wgmma.commit_group.sync.aligned;\n"                         \
                 "//@warp_group wgmma.wait_group.sync.aligned " PENDING ";\n }"             \
                 : BOUND : "l"(a), "l"(b) : "memory")

#if FLAT
// Rows lie one after the other: what is beyond the last one is not stored, so that anything will do,
// but terms beyond the last one must be zero.
#define DECLARE_COPIES                                                                      \
    int from_row[LOADS_A], term = part * STEPS * BK + piece * PER_PIECE;                    \
    _Pragma("unroll") for (int i = 0; i < LOADS_A; i++)                                     \
        from_row[i] = IN0_AT(0, 0, 0, min(first_m + row + i * ROWS_APART, ROWS - 1), 0);
#define FETCH_ROWS(to)                                                                      \
    const int bytes = term < CHANNELS_IN ? 16 : 0;                                          \
    __global const ELEMENT* from = in0 + (term < CHANNELS_IN ? term : 0);                   \
    _Pragma("unroll") for (int i = 0; i < LOADS_A; i++)                                     \
        COPY(to + PLACE(row + i * ROWS_APART, piece), from + from_row[i], bytes);           \
    term += BK;
#else
#define DECLARE_COPIES                                                                      \
    DECLARE_ROWS(LOADS_A, first_m + row, ROWS_APART)                                        \
    DECLARE_TERM(part * STEPS * BK + piece * PER_PIECE)
#define FETCH_ROWS(to)                                                                      \
    _Pragma("unroll") for (int i = 0; i < LOADS_A; i++) {                                   \
        FIND_INPUT(i)                                                                       \
        const int at = inside ? INPUT_AT(i) : 0;                                            \
        COPY_INSIDE(to + PLACE(row + i * ROWS_APART, piece), in0 + at, inside);             \
    }                                                                                       \
    SKIP_TERMS(BK)
#endif
// Start copying one step of BK terms into a stage, and move on to the next.
#define FETCH(stage)                                                                        \
    {                                                                                       \
        const uint to = tiles_at + (stage) * STAGE_BYTES;                                   \
        FETCH_ROWS(to)                                                                      \
        _Pragma("unroll") for (int i = 0; i < LOADS_B; i++)                                 \
            COPY(to + BM * ROW_BYTES + PLACE(row + i * ROWS_APART, piece),                  \
                 columns_at + (size_t)(i * ROWS_APART) * TERMS, 16);                        \
        columns_at += BK;                                                                   \
    }
// Do something with every pair of sums, sum[at] and the next, at row m, column n.
#define PAIRS(action)                                                                       \
    _Pragma("unroll") for (int at = 0; at < SUMS; at += 2) {                                \
        const int m = sums_m + (at & 2) * 4, n = sums_n + at / 4 * 8;                       \
        action;                                                                             \
    }
// The same with those that are in the result, as `pair`.
#define PAIRS_INSIDE(action)                                                                \
    PAIRS(if (m < ROWS && n < COLUMNS) {                                                    \
        const SUM2 pair = (SUM2)(sum[at], sum[at + 1]);                                     \
        action;                                                                             \
    })

// Do something with eight neighbouring sums of `from` to `to` at row m, column n: columns are ordered
// so that a work-item has them.
#define EIGHTS(from, to, action)                                                            \
    _Pragma("unroll") for (int at = from; at < to; at += 16)                                \
        _Pragma("unroll") for (int h = 0; h < 4; h += 2) {                                  \
            const int m = sums_m + h * 4, n = eights_n + at * 2;                            \
            action;                                                                         \
        }
#define EIGHTS_INSIDE(action)                                                               \
    EIGHTS(0, SUMS, if (m < ROWS && n < COLUMNS) {                                          \
        SUM8 eight = (SUM8)(                                                                \
            sum[at + h], sum[at + h + 1], sum[at + h + 4], sum[at + h + 5],                 \
            sum[at + h + 8], sum[at + h + 9], sum[at + h + 12], sum[at + h + 13]);          \
        action;                                                                             \
    })
#if defined(RESULT8) && TOGETHER
// All that the epilogue reads is under way together: no condition, places outside read others.
#define WRITE_EIGHTS                                                                        \
    {                                                                                       \
        RESULT8_T done[SUMS / 8];                                                           \
        EIGHTS(0, SUMS,                                                                     \
               SUM8 eight = (SUM8)(                                                         \
                   sum[at + h], sum[at + h + 1], sum[at + h + 4], sum[at + h + 5],          \
                   sum[at + h + 8], sum[at + h + 9], sum[at + h + 12], sum[at + h + 13]);   \
               const int inside_m = min(m, ROWS - 1);                                       \
               const int inside_n = min(n, COLUMNS - 8);                                    \
               BEGIN(eight, inside_n)                                                       \
               done[at / 8 + h / 2] = RESULT8(eight, inside_m, inside_n))                   \
        EIGHTS(0, SUMS, if (m < ROWS && n < COLUMNS)                                        \
                   OUT0_STORE8(OUT0_AT(m, n), done[at / 8 + h / 2]))                        \
    }
#else
#define WRITE_EIGHTS EIGHTS_INSIDE(BEGIN(eight, n) WRITE8(eight, m, n))
#endif
// Add a part's eight to the sums.
#define ADD_EIGHT(l, u)                                                                     \
    sum[at + h] += (l).s0, sum[at + h + 1] += (l).s1;                                       \
    sum[at + h + 4] += (l).s2, sum[at + h + 5] += (l).s3;                                   \
    sum[at + h + 8] += (u).s0, sum[at + h + 9] += (u).s1;                                   \
    sum[at + h + 12] += (u).s2, sum[at + h + 13] += (u).s3;

// Add up 32 sums of all parts, from number `first` on.
#define ADD_32(first)                                                                       \
    _Pragma("unroll") for (int at = first; at < (first) + 32; at++) sum[at] = 0;            \
    _Pragma("unroll 1") for (int p = 0; p < SPLIT; p++) {                                   \
        /* Reads are under way together: no condition, places outside read others. */       \
        float4 low[4], high[4];                                                             \
        EIGHTS(first, (first) + 32,                                                         \
               __global const float* eight_at =                                             \
                   PART_AT(p, min(m, ROWS - 1), min(n, COLUMNS - 8));                       \
               READ_PART4(low[(at - (first)) / 8 + h / 2], eight_at);                       \
               READ_PART4(high[(at - (first)) / 8 + h / 2], eight_at + 4))                  \
        EIGHTS(first, (first) + 32,                                                         \
               ADD_EIGHT(FROM_PART4(low[(at - (first)) / 8 + h / 2]),                       \
                         FROM_PART4(high[(at - (first)) / 8 + h / 2])))                     \
    }
#if SUMS == 32
#define ADD_PARTS ADD_32(0)
#elif SUMS == 64
#define ADD_PARTS ADD_32(0) ADD_32(32)
#else
#define ADD_PARTS ADD_32(0) ADD_32(32) ADD_32(64)
#endif

KERNEL(PRODUCT) {
    LOCAL_ARRAY(ushort, tiles, STAGES * STAGE_BYTES / 2, , 1024);
    const uint tiles_at = (uint)(size_t)tiles;
    const int thread = get_local_id(0), lane = thread & 31, warp = thread >> 5;
    const int part = get_group_id(2);
    // Eight rows of tiles take turns at the same columns, which they find in the cache.
    const int across = get_num_groups(0), tile = get_group_id(1) * across + get_group_id(0);
    const int above = tile / (8 * across) * 8, high = min((int)get_num_groups(1) - above, 8);
    const int first_m = (above + tile % (8 * across) % high) * BM;
    const int first_n = tile % (8 * across) / high * BN;
    const int row = thread / PIECES, piece = thread % PIECES;
    const int warp_m = first_m + warp / 4 * 64 * TALL + warp % 4 * 16 + (lane >> 2);
    const int sums_n = first_n + (lane & 3) * 2;
    const int eights_n = first_n + (lane & 3) * 8;

    DECLARE_COPIES
    __global const WEIGHT* columns_at =
        filter + (size_t)(first_n + row) * TERMS + part * STEPS * BK + piece * PER_PIECE;

    SUM sum[TALL * SUMS];
    #pragma unroll
    for (int at = 0; at < TALL * SUMS; at++) sum[at] = 0;
    for (int s = 0; s < STAGES - 1 - LATE; s++) {
        if (s < STEPS) FETCH(s)
        CLOSE_STAGE();
    }
    uint reads = tiles_at, writes = STAGES - 1 - LATE;
    for (int step = 0; step < STEPS; step++) {
        AWAIT(STAGES - 2 - LATE);
        asm volatile("//@warp_group fence.proxy.async.shared::cta;");  // the copies, before the matrix units
        barrier(CLK_LOCAL_MEM_FENCE);
        const ulong a = MATRIX(reads + warp / 4 * 64 * TALL * ROW_BYTES);
        const ulong b = MATRIX(reads + BM * ROW_BYTES);
        reads = reads == tiles_at + (STAGES - 1) * STAGE_BYTES ? tiles_at : reads + STAGE_BYTES;
        if (step + STAGES - 1 - LATE < STEPS) FETCH(writes)
        CLOSE_STAGE();
        writes = writes == STAGES - 1 ? 0 : writes + 1;
        MULTIPLY(a, b);
    }
#if LATE
    asm volatile("//@warp_group wgmma.wait_group.sync.aligned 0;" : BOUND : : "memory");
#endif
#if SPLIT > 1
    const int sums_m = warp_m;
#if WIDE
    EIGHTS_INSIDE(*(__global SUM8*)PART_AT(part, m, n) = eight)
#else
    PAIRS_INSIDE(*(__global SUM2*)PART_AT(part, m, n) = pair)
#endif
    __local uint* arrived = (__local uint*)tiles;  // all that is left to keep in local memory
    LEAVE_UNLESS_LAST(*arrived)
#if WIDE
    ADD_PARTS
#else
    #pragma unroll
    for (int at = 0; at < SUMS; at++) sum[at] = 0;
    for (int p = 0; p < SPLIT; p++) {
        // All reads of a part are under way together: no condition, places outside read others.
        float2 pairs[SUMS / 2];
        PAIRS(READ_PART2(pairs[at / 2], PART_AT(p, min(m, ROWS - 1), min(n, COLUMNS - 2))))
        PAIRS(sum[at] += pairs[at / 2].s0; sum[at + 1] += pairs[at / 2].s1)
    }
#endif
#endif
#if TALL == 2
    #pragma unroll
    for (int t = 0; t < TALL; t++) {
        SUM* own = sum + t * SUMS;
        const int sums_m = warp_m + t * 64;
#define sum own
#if WIDE
        WRITE_EIGHTS
#else
        PAIRS_INSIDE(WRITE2(pair, m, n))
#endif
#undef sum
    }
#else
#if SPLIT == 1
    const int sums_m = warp_m;
#endif
#if WIDE
    WRITE_EIGHTS
#else
    PAIRS_INSIDE(WRITE2(pair, m, n))
#endif
#endif
}
