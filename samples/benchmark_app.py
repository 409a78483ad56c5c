"""The Inference Engine's benchmark_app: the same options, steps and report lines.

    python samples/benchmark_app.py -m model.xml -d CPU -t 5

It is the command ``polydevice bench`` under its old name.
"""

from __future__ import annotations

import sys

from polydevice.cli import main

if __name__ == "__main__":
    sys.exit(main(["bench", *sys.argv[1:]]))
