"""Inputs padded up to sizes of SHAPE_BUCKETS, where that provably changes no answer.

`symbols` names the sizes that are padded, `proof` finds which axes of each value follow them, by
the rules in `rules` (one for each kind of operation), `guards` hides padding from what would mix it
with the rest, and `network` pads, infers and cuts.
"""
