"""Products of so few rows that tiles of rows would be mostly empty: lanes take other terms."""

from __future__ import annotations

from polydevice_gpu.graph import GpuNode
from polydevice_gpu.kernels.gemm.gemm_tiled import ConvolutionTiled, MatmulTiled, TiledEngine
from polydevice_gpu.kernels.kernel import Mode
from polydevice_gpu.kernels.launch import Weights
from polydevice_gpu.kernels.reason import unless
from polydevice_gpu.kernels.target import Target

MOST_ROWS = 4
"""More fill tiles better."""
_MOST_GROUPS = 4
"""Work-groups of one row for each processor, which run side by side, or nearly. More columns fill
the device in tiles, too."""
_MOST_BYTES = 2 << 20
"""Of weights; more are read faster by tiles whose terms are split. In one launch ResNet-50's last
product in half, of 4 MB, took 6 us longer so, and MobileNetV2's, of 2.6 MB, 2 us (H200)."""
_LANES, _COLUMNS = 32, 4
_START_US, _STEP_US, _ROW_US = 4.0, 0.08, 0.02
"""Of a launch, of a step of all groups that run at the same time, and of each row in it."""


class FewRows(TiledEngine):
    """A work-group computes four columns; 32 lanes take the terms of each."""

    name = "few_rows"
    source = "product/few_rows.cl"
    tiles = ()
    modes = tuple({"BM": rows, "BN": _COLUMNS, "SPLIT": 1} for rows in (1, MOST_ROWS))
    step = 4 * _LANES

    def yields(self, node: GpuNode, target: Target) -> str:
        """Many rows or columns; processor cores, whose lanes are columns; sizes that vary."""
        rows, columns, _ = self.sizes(node)
        few = columns <= _COLUMNS * _MOST_GROUPS * target.compute_units
        weights = node.inputs[1]
        size = weights.elements * weights.storage.dtype.itemsize
        return unless(
            (target.is_throughput, "work-items do not run in lockstep"),
            (not target.sizes_vary, "its number of rows may vary"),
            (rows <= MOST_ROWS, f"{rows} rows fill tiles in local memory"),
            (few, f"{columns} columns fill tiles in local memory"),
            (size <= _MOST_BYTES, f"{size} bytes of weights are read faster in tiles"),
        )

    def threads(self, mode: Mode) -> int:
        """32 for each column."""
        return _LANES * mode["BN"]

    def mode_supports(self, node: GpuNode, mode: Mode, target: Target) -> bool:
        """The device has groups of that size."""
        return self.threads(mode) <= target.max_work_group_size

    def form(self, node: GpuNode, columns: int, terms: int) -> Weights:
        """[column, term] in the type of the weights."""
        make = self.padded(node, columns, terms)
        form = f"{self.kind_of_weights(node)} {columns}x{terms}"
        return Weights(node.inputs[1], form, make, node.inputs[1].storage, only_moves=True)

    def expected_us(self, node: GpuNode, number: int, target: Target) -> float:
        """Return the expected time of a mode; the least for tiles of all rows."""
        rows, columns, terms = self.sizes(node)
        mode = self.modes[number]
        groups = -(-rows // mode["BM"]) * -(-columns // mode["BN"])
        rounds = -(-groups // (_MOST_GROUPS * target.compute_units))
        steps = -(-terms // self.step)
        return _START_US + rounds * steps * (_STEP_US + mode["BM"] * _ROW_US)


class ConvolutionFewRows(FewRows, ConvolutionTiled):
    """Convolution with few pixels."""


class MatmulFewRows(FewRows, MatmulTiled):
    """Product of few rows with a constant matrix."""
