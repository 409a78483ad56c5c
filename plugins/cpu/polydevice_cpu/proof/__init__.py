"""Proofs: a fused primitive is used after it has computed what its parts compute.

oneDNN takes combinations of layouts, sizes and post-operations that it then computes wrongly, or
for which it reads outside the operands. So each class of them (`claim.py`) is tried on random data
between guard bytes (`trial.py`) against NumPy's answer and its error bound (`functions.py`) before
the first use; what was learnt is kept per library and processor (`ledger.py`). What fails is
computed in separate steps, or by NumPy.
"""
