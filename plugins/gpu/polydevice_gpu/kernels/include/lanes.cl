// Lanes of a sub-group that hand each other values, each in turn to all. Work-groups are lines of
// SUBS sub-groups of SG lanes.
// Needs: SG, SUBS; SIZE_REQUIRED (the kernel gets sub-groups of that size, whatever its compiler
// likes); END_ALONE (sub-groups with nothing to do may end before the others of their work-group); SHARE (the function that gives a lane's value to all lanes; not defined where there is
// none); LANE_T (type of the values).
// A lane sums products for TM rows and TN columns, SG apart; with HALF a few terms in half.
// Where sub-groups turn out to have another size, and where there are none, values go through local
// memory.
#if SIZE_REQUIRED
#define DECLARE_LANES(count) const int lane = get_sub_group_local_id(), sub = get_sub_group_id();
#define OFFER(values, count)
#define TAKE(values, i, k) SHARE(values[i], k)
#else
#ifdef SHARE
#define ALIKE (get_max_sub_group_size() == SG)
#define TAKE(values, i, k) (alike ? SHARE(values[i], k) : offered[sub][i][k])
#else
#define ALIKE 0
#define get_sub_group_local_id() 0
#define get_sub_group_id() 0
#define TAKE(values, i, k) offered[sub][i][k]
#endif
// Declare `lane` and `sub`, its sub-group; `count` is how many values each lane offers at a time.
#define DECLARE_LANES(count)                                                                      \
    LOCAL_ARRAY(LANE_T, offered, SUBS, [count][SG], 64);                                          \
    const bool alike = ALIKE;                                                                     \
    const int lane = alike ? get_sub_group_local_id() : get_local_id(0) % SG;                     \
    const int sub = alike ? get_sub_group_id() : get_local_id(0) / SG;
#define OFFER(values, count)                                                                      \
    if (!alike) {                                                                                 \
        barrier(CLK_LOCAL_MEM_FENCE);                                                             \
        for (int i = 0; i < count; i++) offered[sub][i][lane] = values[i];                        \
        barrier(CLK_LOCAL_MEM_FENCE);                                                             \
    }
#endif

#define DECLARE_TABLE(table, kind)                                                                \
    kind table[TM][TN];                                                                           \
    _Pragma("unroll") for (int i = 0; i < TM; i++)                                                \
        _Pragma("unroll") for (int j = 0; j < TN; j++) table[i][j] = 0;
#if HALF
#define SUMMED strip
#define DECLARE_SUMS                                                                              \
    DECLARE_TABLE(sum, float)                                                                     \
    DECLARE_TABLE(strip, LANE_T)
// After term k of a step: add the sums in half to those in float, every 16 terms.
#define END_TERM(k)                                                                               \
    if ((k) % 16 == 15 || (k) == SG - 1) {                                                        \
        _Pragma("unroll") for (int i = 0; i < TM; i++)                                            \
            _Pragma("unroll") for (int j = 0; j < TN; j++) sum[i][j] += strip[i][j],              \
            strip[i][j] = 0;                                                                      \
    }
#else
#define SUMMED sum
#define DECLARE_SUMS DECLARE_TABLE(sum, float)
#define END_TERM(k)
#endif
// Add the products of lane k's elements of the rows and each lane's elements of the columns.
#define ADD_PRODUCTS(row, column, k)                                                              \
    _Pragma("unroll") for (int i = 0; i < TM; i++) {                                              \
        const LANE_T x = TAKE(row, i, k);                                                         \
        _Pragma("unroll") for (int j = 0; j < TN; j++)                                            \
            SUMMED[i][j] = fma(x, column[j], SUMMED[i][j]);                                       \
    }
// Store by PUT(v, m, n) what is in the result.
#define STORE_SUMS(rows, columns)                                                                 \
    _Pragma("unroll") for (int i = 0; i < TM; i++) {                                              \
        const int m = first_m + i;                                                                \
        if (m >= rows) continue;                                                                  \
        _Pragma("unroll") for (int j = 0; j < TN; j++) {                                          \
            const int n = first_n + j * SG + lane;                                                \
            if (n < columns) PUT(sum[i][j], m, n);                                                \
        }                                                                                         \
    }
// Read a vector of TN elements, of which a block read gives each lane one in SG.
#define JOIN2(a, b) a##b
#define JOIN(a, b) JOIN2(a, b)
#if TN == 1
#define PUT_BLOCK(block, column) column[0] = block
#else
#define PUT_BLOCK(block, column) JOIN(vstore, TN)(block, 0, column)
#endif
