// moments_wgmma: as gemm_wgmma, of rows that are normalised by what was measured of their slots.
// NDRange, layouts and types: as gemm_wgmma.
// Needs: as gemm_wgmma; SLOTS (of a row), WIDTH (terms of a slot, of which the last may have fewer);
// EPSILON; IN4, mean and squares about it of each row and slot; for each column COLUMN_SUMS (of the
// weights) and SHIFTS. NVIDIA's PTX.
#include "include/moments.cl"
// Four lanes share a row's sums, and its slots where all of them come by.
#ifdef RESULT8
#define SHARING 4
#else
#define SHARING 1
#endif
#define SLOTS_OF_LANE ((SLOTS + SHARING - 1) / SHARING)
#define COUNT_OF(slot) (float)min(CHANNELS_IN - (slot) * WIDTH, WIDTH)
// Do something with every slot that this lane reads, by its number and count of terms.
#define EACH_SLOT(action)                                                                   \
    _Pragma("unroll") for (int i = 0; i < SLOTS_OF_LANE; i++) {                             \
        const int slot = i * SHARING + (lane & (SHARING - 1));                              \
        if (slot < SLOTS) { action }                                                        \
    }
#define OVER_SHARING(x)                                                                     \
    _Pragma("unroll") for (int bit = 1; bit < SHARING; bit <<= 1) {                               \
        float others;                                                                       \
        FROM_LANE(others, x, bit);                                                          \
        x += others;                                                                        \
    }
// Mean and factor of row m, `found`, by the lanes that share it.
#define JOIN_SLOTS(found, m)                                                                \
    float2 found;                                                                           \
    {                                                                                       \
        float2 slots[SLOTS_OF_LANE];                                                        \
        float mean = 0.0f, squares = 0.0f;                                                  \
        EACH_SLOT(slots[i] = IN4_LOAD2(IN4_AT(m, slot, 0));)                                \
        EACH_SLOT(mean += slots[i].s0 * COUNT_OF(slot);)                                    \
        OVER_SHARING(mean)                                                                  \
        mean /= CHANNELS_IN;                                                                \
        EACH_SLOT(const float off = slots[i].s0 - mean;                                     \
                  squares += slots[i].s1 + off * off * COUNT_OF(slot);)                     \
        OVER_SHARING(squares)                                                               \
        found = (float2)(mean, rsqrt(squares / CHANNELS_IN + EPSILON));                     \
    }
#undef BEGIN
#define BEGIN(eight, n)                                                                     \
    {                                                                                       \
        JOIN_SLOTS(row, min(m, ROWS - 1))                                                   \
        eight = (eight - row.s0 * EIGHT_FLOATS(column_sums + (n))) * row.s1 +               \
                EIGHT_FLOATS(shifts + (n));                                                 \
    }

#define PRODUCT moments_wgmma
#define ELEMENT half
#define ELEMENT_BYTES 2
#define WEIGHT half
#define TERMS_AND_TYPES "k16.f32.f16.f16"
#define HOW "1, 1, 1, 0, 0"
#define SUM2 float2
#define SUM8 float8
#define SUM_IN(x) "+f"(x)
#define FROM_PART4(part) (part)
#define COPY_INSIDE(to, from, inside) COPY(to, from, inside ? 16 : 0)
#define TOGETHER 1
#include "include/warp_group_product.cl"
