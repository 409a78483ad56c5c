"""The passes of the graph compiler; `compiler/stages.py` says in which order they run."""
