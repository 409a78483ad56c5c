"""pyopencl as polydevice imports it: whole, once somebody asks for what comes late."""

from __future__ import annotations

import subprocess
import sys

import pytest

LATE = "import sys, pyopencl as cl\nassert 'pytools.persistent_dict' not in sys.modules\n"
ASKING = {
    "a type": "assert cl.cltypes.float4.itemsize == 16",
    "its module": "import pyopencl.cltypes as t; assert t.make_int2(1, 2)['y'] == 2",
    "from its module": "from pyopencl.cltypes import double8 as t; assert t.itemsize == 64",
    "a type's name": (
        "from pyopencl.tools import parse_arg_list\n"
        "(found,) = parse_arg_list('__global float4 *x'); assert found.dtype.itemsize == 16"
    ),
    "tools first": "assert cl.tools.dtype_to_ctype(cl.cltypes.uchar3) == 'uchar3'",
    "arrays": "import pyopencl.array as a; assert a.vec.float4.itemsize == 16",
    "what is not there": (
        "try: cl.cltypes.float5\nexcept AttributeError as e: assert 'float5' in str(e)\n"
        "else: raise SystemExit(1)"
    ),
    "threads": (
        "import threading; made = []\n"
        "ask = lambda: made.append(cl.cltypes.float4)\n"
        "threads = [threading.Thread(target=ask) for _ in range(8)]\n"
        "[t.start() for t in threads]; [t.join() for t in threads]\n"
        "assert len(made) == 8 and len({id(each) for each in made}) == 1"
    ),
}


@pytest.mark.parametrize("asked", ASKING)
def test_what_comes_late_is_there_for_who_asks(asked) -> None:
    run(f"import polydevice_gpu.cl.device\n{LATE}{ASKING[asked]}")


def test_a_pyopencl_that_is_there_already_stays_as_it_is() -> None:
    run(
        "import pyopencl as cl, sys\nbefore = dict(vars(cl.cltypes))\n"
        "from polydevice_gpu.cl.bindings import ocl\n"
        "assert ocl is cl and vars(sys.modules['pyopencl.cltypes']) == before"
    )


def run(text: str) -> None:
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
