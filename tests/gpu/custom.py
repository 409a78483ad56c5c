"""What tests of the user's kernels share: two kernels, their CONFIG_FILE, and running it."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tests.cpu.models import build

X = {"x": np.random.default_rng(1).integers(-40, 40, (2, 3, 5, 7)).astype(np.float32) / 8}
"""Eighths, so that sums and products are exact, fused or not."""

SCALE_CL = """
__kernel void scale(const __global INPUT0_TYPE* input0, __global OUTPUT0_TYPE* output)
{
    const uint i = get_global_id(0);
    output[i] = input0[i] * FACTOR + OFFSET;
}
"""
# Reads and writes through dims, pitches and offsets only, as the original's guide shows.
PITCHES_CL = """
__kernel void through_pitches(__global OUTPUT0_TYPE* out, const __global INPUT0_TYPE* in)
{
    const int x = get_global_id(0), y = get_global_id(1);
    for (int b = 0; b < OUTPUT0_DIMS[0]; ++b)
        for (int f = 0; f < OUTPUT0_DIMS[1]; ++f) {
            const int from = INPUT0_OFFSET + b * INPUT0_PITCHES[0] + f * INPUT0_PITCHES[1]
                           + y * INPUT0_PITCHES[2] + x * INPUT0_PITCHES[3];
            const int to = OUTPUT0_OFFSET + b * OUTPUT0_PITCHES[0] + f * OUTPUT0_PITCHES[1]
                         + y * OUTPUT0_PITCHES[2] + x * OUTPUT0_PITCHES[3];
            out[to] = in[from] * 2 + x + 100 * y;
        }
}
"""
# Believes blindly that its format is what it asked for.


def layer(
    name="ReLU", kernel="scale", source="scale.cl", defines="", tensors=None, sizes=None
) -> str:
    tensors = tensors or (
        '<Tensor arg-index="0" type="input" port-index="0" format="BFYX"/>'
        '<Tensor arg-index="1" type="output" port-index="0" format="BFYX"/>'
    )
    sizes = '<WorkSizes global="B*F*Y*X"/>' if sizes is None else sizes
    return f"""
<CustomLayer name="{name}" type="SimpleGPU" version="1">
  <Kernel entry="{kernel}"><Source filename="{source}"/>{defines}</Kernel>
  <Buffers>{tensors}</Buffers>
  <CompilerOptions options="-cl-mad-enable"/>
  {sizes}
</CustomLayer>"""


DEFINES = '<Define name="FACTOR" default="3"/><Define name="OFFSET" type="float" default="0.5f"/>'


def write_files(folder: Path) -> Path:
    (folder / "scale.cl").write_text(SCALE_CL)
    (folder / "pitches.cl").write_text(PITCHES_CL)
    (folder / "good.xml").write_text(layer(defines=DEFINES))
    return folder


def relu() -> bytes:
    return build([("Relu", ["x"], ["y"], {})], {"x": [2, 3, 5, 7]}, ["y"], {})


def run(core, files, model=None, config=None, name="good.xml", inputs=None):
    network = core.read_network(model or relu())
    given = {"CONFIG_FILE": str(files / name), **(config or {})}
    executable = core.load_network(network, "GPU", given)
    return next(iter(executable.infer(inputs or X).values()))
