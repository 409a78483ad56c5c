"""Operations that are computed on arrays: started for a request, with its variables and bodies."""
