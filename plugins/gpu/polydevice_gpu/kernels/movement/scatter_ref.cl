// scatter_ref: one work-item computes one element: its old value and the updates that name it.
// NDRange: {COUNT}; local size free.
// Layouts: any.   Types: any; integer indices, negative ones counting from the end.
// Needs: COUNT, UPDATES, COORDINATES (declares them from i), OLD, MATCHES(t), UPDATE(t), STORE(v),
// COMBINE(v, u), MEAN, MEAN_OF(v, n), USE_OLD. Looks at every update for every element.
#include "include/indices.cl"

KERNEL(scatter_ref) {
    const int i = get_global_id(0);
    if (i >= COUNT) return;
    COORDINATES
    IN0_C v = OLD;
    int found = 0;
    for (int t = 0; t < UPDATES; t++) {
        if (!(MATCHES(t))) continue;
        const IN0_C u = UPDATE(t);
        v = !USE_OLD && found == 0 ? u : (IN0_C)COMBINE(v, u);
        found++;
    }
    // Integer means are rounded down.
    if (MEAN && found > 0) v = MEAN_OF(v, (IN0_C)(found + USE_OLD));
    STORE(v);
}
