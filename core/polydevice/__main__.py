"""`python -m polydevice` is the command line."""

import sys

from polydevice.cli import main

sys.exit(main())
