"""Many launches as one: a kernel whose work-groups walk a program of stages, with barriers between.

`choose.py` says which launches of a plan join and why the others do not, `function.py` makes their
kernels functions and `source.py` the kernel that calls them, `stretch.py` is what a plan keeps of
launches that joined, and `joined_launches.py` what a request replays.
"""
