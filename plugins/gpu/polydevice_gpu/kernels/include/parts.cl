// Vectors of a result of ROWS by COLUMNS, or of the work-group's part of its sums: PUT4(v, m, n),
// PUT4_FIRST(count, v, m, n). Needs: SUM, the type of a sum.
#if SPLIT > 1
#define PUT4_FIRST(count, v, m, n)                                                                \
    {                                                                                             \
        SUM lanes[4];                                                                             \
        vstore4(v, 0, lanes);                                                                     \
        for (int lane = 0; lane < count; lane++)                                                  \
            parts[((size_t)part * ROWS + m) * COLUMNS + n + lane] = lanes[lane];                  \
    }
#define PUT4(v, m, n) PUT4_FIRST(4, v, m, n)
#else
#define PUT4(v, m, n) WRITE4(v, m, n)
#define PUT4_FIRST(count, v, m, n) WRITE4_FIRST(count, v, m, n)
#endif
