// elementwise_tiled: a work-group computes a square of TILE x TILE results along two axes: `inner`,
// along which results are neighbours in memory, and `across`, along which those of one input are.
// That input comes through local memory, so that reads and writes both touch neighbours.
// NDRange: {inner, across in steps of ROWS for TILE, the third axis}, local {TILE, ROWS, 1}.
// Layouts: any with such axes.   Types: any stored type; float or int in local memory.
// Needs: TILE, ROWS, ACROSS_FIRST (whether `across` is coordinate 0 instead of 1), INNER and ACROSS
// (sizes), SOURCE_LOAD and SOURCE_AT (the input), compute (which reads it as tile elements).
#define C0(rest, across) (ACROSS_FIRST ? (across) : (rest))
#define C1(rest, across) (ACROSS_FIRST ? (rest) : (across))

KERNEL(elementwise_tiled) {
    const int lane = get_local_id(0), rest = get_global_id(2);
    const int first_inner = get_group_id(0) * TILE, first_across = get_group_id(1) * TILE;
    for (int row = get_local_id(1); row < TILE; row += ROWS) {
        const int across = first_across + lane, inner = first_inner + row;
        if (across < ACROSS && inner < INNER)
            tile_memory[lane * (TILE + 1) + row] =
                SOURCE_LOAD(SOURCE_AT(C0(rest, across), C1(rest, across), inner));
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int row = get_local_id(1); row < TILE; row += ROWS) {
        const int across = first_across + row, inner = first_inner + lane;
        if (across < ACROSS && inner < INNER)
            OUT0_STORE(OUT0_AT(C0(rest, across), C1(rest, across), inner),
                       compute(C0(rest, across), C1(rest, across), inner, ARGUMENTS));
    }
}
