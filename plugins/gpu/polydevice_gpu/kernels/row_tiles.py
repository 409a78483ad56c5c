"""Row tiles: a matrix in tiles of eight rows by 32 columns, see `passes/placing/tile_rows.py`."""

from __future__ import annotations

TILE_ROWS, TILE_COLUMNS = 8, 32

IN_ROW_TILES = f"""\
static inline int in_row_tiles(int at, int columns) {{
    const int row = at / columns, column = at % columns;
    const int m = row % {TILE_ROWS}, n = column % {TILE_COLUMNS};
    return (row - m) * columns + (column - n) * {TILE_ROWS} + m * {TILE_COLUMNS} + n;
}}
"""
"""Where an element lies whose matrix lies in tiles; neighbours in a row of a tile stay such."""
