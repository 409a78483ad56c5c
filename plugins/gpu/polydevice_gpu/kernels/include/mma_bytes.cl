// c += a * b on the matrix units of a warp: 16 by 32 bytes by 32 by 8 with a sign, sums in int.
// Needs: SIGNED (bytes of a have a sign).
#if SIGNED
#define INSTRUCTION "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 "
#else
#define INSTRUCTION "mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 "
#endif
#define MULTIPLY(c, a, b0, b1)                                                      \
    asm volatile(INSTRUCTION "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};" \
                 : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])                   \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1))
