// What products on the matrix units of warp groups have in common: how tiles lie in local memory,
// the instruction, and what a work-item does with its sums.
// Needs: BM, BN (64, 128, 192 or 256), BK (terms of 64 or 128 bytes), TALL (1, or 2: a warp group has
// 128 rows), ROWS, COLUMNS; ELEMENT_BYTES of a factor; TERMS_AND_TYPES and HOW of the instruction;
// SUM2, SUM8, SUM_IN (a register of a sum); BEGIN (what is added to eight sums in the end); PENDING, a
// text: how many steps' products may be under way when `MULTIPLY` ends; TOGETHER (results are made
// before the first is stored).
// NVIDIA's compiler aims below this instruction: see cl/programs/warp_groups.py for "//@warp_group".
#define ROW_BYTES (BK * ELEMENT_BYTES)
#define PIECES (ROW_BYTES / 16)
#define PER_PIECE (16 / ELEMENT_BYTES)
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
