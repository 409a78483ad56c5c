// Results of matrix units in eights: of every row four lanes have a pair of columns of each tile of
// eight. Stores of such pairs fill a half of what memory writes at once, which took twice as long.
// The value of the lane whose number differs in one bit: a row's columns are in four lanes.
#define ACROSS(to, from, bit)                                                               \
    asm volatile("shfl.sync.bfly.b32 %0, %1, %2, 31, 0xffffffff;"                           \
                 : "=f"(to) : "f"(from), "n"(bit))
// The lane without the bit keeps its pair of tile `low` and gets the other's as its pair of tile
// `high`, and the other way round.
#define TRADE(pairs, low, high, bit)                                                        \
    _Pragma("unroll") for (int of = 0; of < 2; of++) {                                      \
        const float given = lane & (bit) ? pairs[low][of] : pairs[high][of];                \
        float taken;                                                                        \
        ACROSS(taken, given, bit);                                                          \
        pairs[low][of] = lane & (bit) ? taken : pairs[low][of];                             \
        pairs[high][of] = lane & (bit) ? pairs[high][of] : taken;                           \
    }
// From pairs of four tiles to all four pairs of tile (lane & 3).
#define TRADE_ALL(pairs) \
    TRADE(pairs, 0, 1, 1) TRADE(pairs, 2, 3, 1) TRADE(pairs, 0, 2, 2) TRADE(pairs, 1, 3, 2)
#define PAIRS_OF(pairs)                                                                     \
    (float8)(pairs[0][0], pairs[0][1], pairs[1][0], pairs[1][1],                            \
             pairs[2][0], pairs[2][1], pairs[3][0], pairs[3][1])
