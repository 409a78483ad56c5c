"""Operations known by the steps that models write them in: one file per stem of the operation."""
