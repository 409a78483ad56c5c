"""Operations known by the steps that models write them in: a file or folder per stem of each."""
