"""Operations known by the steps that models write them in: one file or folder per stem of the operation."""
