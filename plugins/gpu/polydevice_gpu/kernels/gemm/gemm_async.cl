// gemm_async: a work-group computes BM pixels (rows) by BN channels (columns) in float, its local
// memory filled by asynchronous copies.
// NDRange: {column tiles * THREADS, row tiles, SPLIT}; local size {THREADS, 1, 1}.
// Layouts: channels side by side, a multiple of 4 of them.   Types: float.
// Needs: as gemm_tiled and arrivals.cl, but STAGES, and no TERMS_AT_ONCE; FILTER as [term, column].
#include "include/arrivals.cl"
#include "include/rows.cl"
#include "include/shares.cl"
#define PUT4(v, m, n) WRITE4(v, m, n)
#define PUT4_FIRST(count, v, m, n) WRITE4_FIRST(count, v, m, n)
#define BK 16
#define ACROSS (BN / TN < 8 ? BN / TN : 8)
#define PIECES (BK / 4)
#define COPIES_A (BM * PIECES / THREADS)
#define COPIES_B (BN * PIECES / THREADS)
#define ROWS_APART (THREADS / PIECES)
#define TERMS_APART (THREADS * 4 / BN)
#define STAGE_BYTES ((BM + BN) * BK * 4)
#define COPY(to, from, bytes)                                                                   \
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes) \
                 : "memory")
#define CLOSE_STAGE() asm volatile("cp.async.commit_group;" ::: "memory")
#define AWAIT(n) asm volatile("cp.async.wait_group %0;" ::"n"(n) : "memory")
// A row is BK terms, in pieces of four; exchanging them by row keeps reads free of conflicts.
#define PLACE(row, piece) ((row) * BK * 4 + (((piece) ^ (((row) >> 2) & (PIECES - 1))) << 4))
#define LOCAL4(bytes) (*(__local const float4*)((__local const char*)tiles + (bytes)))

#define FETCH(stage)                                                                              \
    {                                                                                             \
        const uint to = tiles_at + (stage) * STAGE_BYTES;                                         \
        _Pragma("unroll") for (int i = 0; i < COPIES_A; i++) {                                    \
            FIND_INPUT(i)                                                                         \
            const int at = inside ? INPUT_AT(i) : 0;                                              \
            COPY(to + PLACE(row + i * ROWS_APART, piece), in0 + at, inside ? 16 : 0);             \
        }                                                                                         \
        _Pragma("unroll") for (int i = 0; i < COPIES_B; i++)                                      \
            COPY(to + BM * BK * 4 + ((b_term + i * TERMS_APART) * BN + b_column) * 4,             \
                 filter + filter_at + i * TERMS_APART * COLUMNS_PADDED, 16);                      \
        filter_at += BK * COLUMNS_PADDED;                                                         \
        SKIP_TERMS(BK)                                                                            \
    }

KERNEL(gemm_async) {
    LOCAL_ARRAY(float, tiles, STAGES * STAGE_BYTES / 4, , 128);
#if SPLIT > 1
    LOCAL_ARRAY(uint, arrived, 1, , 16);
#endif
    const uint tiles_at = (uint)(size_t)tiles;
    const int thread = get_local_id(0);
    const int block = thread / 32, lane = thread % 32;
    const int share_n = (block % (BN / TN / ACROSS) * ACROSS + lane % ACROSS) * 4;
    const int share_m = (block / (BN / TN / ACROSS) * (32 / ACROSS) + lane / ACROSS) * 4;
    const int first_m = get_group_id(1) * BM, first_n = get_group_id(0) * BN;
    const int part = get_group_id(2);
    const int row = thread / PIECES, piece = thread % PIECES;
    const int b_column = thread % (BN / 4) * 4, b_term = thread / (BN / 4);

    DECLARE_ROWS(COPIES_A, first_m + row, ROWS_APART)
    const int start = part * STEPS * BK + piece * 4;
    DECLARE_TERM(start)
    int filter_at = (part * STEPS * BK + b_term) * COLUMNS_PADDED + first_n + b_column;

    DECLARE_SUMS

    for (int s = 0; s < STAGES - 1; s++) {
        if (s < STEPS) FETCH(s);
        CLOSE_STAGE();
    }
    for (int step = 0; step < STEPS; step++) {
        AWAIT(STAGES - 2);
        barrier(CLK_LOCAL_MEM_FENCE);
        if (step + STAGES - 1 < STEPS) FETCH((step + STAGES - 1) % STAGES);
        CLOSE_STAGE();
        const int a_at = (step % STAGES) * STAGE_BYTES + share_m * BK * 4;
        const int b_at = (step % STAGES) * STAGE_BYTES + BM * BK * 4 + share_n * 4;
        #pragma unroll
        for (int p = 0; p < PIECES; p++) {
            const int turned = (p ^ ((share_m >> 2) & (PIECES - 1))) << 4;
            float a[TM][4];
            #pragma unroll
            for (int i = 0; i < TM; i++)
                vstore4(LOCAL4(a_at + (i / 4 * (BM / GROUPS_M) + i % 4) * BK * 4 + turned), 0, a[i]);
            #pragma unroll
            for (int k = 0; k < 4; k++) {
                float4 b[GROUPS_N];
                #pragma unroll
                for (int g = 0; g < GROUPS_N; g++)
                    b[g] = LOCAL4(b_at + ((p * 4 + k) * BN + g * (BN / GROUPS_N)) * 4);
                ADD_PRODUCTS(a[i][k], b)
            }
        }
    }
#if SPLIT > 1
    const int in_vectors = COLUMNS % 4 == 0;
    if (in_vectors) {
        VECTORS_INSIDE(ROWS, COLUMNS, *(__global float4*)PART_AT(part, m, n) = sum[i][j])
    } else {
        VECTORS_INSIDE(ROWS, COLUMNS, WRITE_PART_LANES(sum[i][j], part, m, n))
    }
    LEAVE_UNLESS_LAST(*arrived)
    CLEAR_SUMS
    if (in_vectors) {
        #pragma unroll
        for (int p = 0; p < SPLIT; p++) {
            // All reads of a part are under way together: no condition, places outside read others.
            float4 vectors[TM][GROUPS_N];
            VECTORS(READ_PART4(vectors[i][j], PART_AT(p, min(m, ROWS - 1), min(n, COLUMNS - 4))))
            VECTORS(sum[i][j] += vectors[i][j])
        }
    } else {
        for (int p = 0; p < SPLIT; p++) {
            VECTORS_INSIDE(ROWS, COLUMNS, ADD_PART_LANES(sum[i][j], p, m, n))
        }
    }
#endif
    STORE_SUMS(ROWS, COLUMNS)
}
