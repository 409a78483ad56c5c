"""ROIAlign, ROIPooling and their relatives: regions of a feature map as small rectangles."""

from __future__ import annotations

from polydevice.ops.roi import (
    AlignedMode,
    DeformablePSROIPooling,
    PSROIPooling,
    ROIAlign,
    ROIAlignRotated,
    RoiMode,
    ROIPooling,
)
from polydevice_gpu.graph import GpuNode
from polydevice_gpu.kernels.kernel import Mode, SingleLaunch, kernel
from polydevice_gpu.kernels.reason import NO_FLOATS, unless
from polydevice_gpu.kernels.source import Call
from polydevice_gpu.kernels.target import Target

MAX_SAMPLES = 64
"""Most samples per bin and axis; more would keep a work-item busy for seconds."""

_SAMPLES = f"it takes more than {MAX_SAMPLES} samples in one direction"


def _describe_regions(call: Call) -> None:
    """Declare feature map, regions and result; one work-item computes one element."""
    x, rois, out = call.node.inputs[0], call.node.inputs[1], call.node.output
    call.tensor("IN0", x)
    call.tensor("IN1", rois)
    call.result()
    call.scalars(
        IMAGES=x.shape[0], HEIGHT=x.shape[2], WIDTH=x.shape[3], CHANNELS=out.shape[1],
        BINS_Y=out.shape[2], BINS_X=out.shape[3],
    )  # fmt: skip
    call.dispatch((out.shape[3], out.shape[2], out.shape[1] * out.shape[0]))


def _is_float(node: GpuNode) -> bool:
    return all(value.element_type.is_float for value in node.inputs[:2])


@kernel(ROIAlign)
class RoiAlignRef(SingleLaunch):
    """One work-item samples one bin of one channel."""

    def refuses(self, node: GpuNode, target: Target) -> str:
        """Floats; the number of samples must be bounded."""
        few = node.operation(ROIAlign).sampling_ratio <= MAX_SAMPLES
        return unless((_is_float(node), NO_FLOATS), (few, _SAMPLES))

    def describe(self, call: Call, op: ROIAlign, mode: Mode) -> None:
        """Coordinates: region, channel, bin."""
        _describe_regions(call)
        batches = call.node.inputs[2]
        call.tensor("IN2", batches, [tuple(range(batches.rank))])
        call.scalars(
            SCALE=float(op.spatial_scale),
            BEFORE=0.5 if op.aligned_mode is AlignedMode.HALF_PIXEL else 0.0,
            BEHIND=0.0 if op.aligned_mode is AlignedMode.ASYMMETRIC else 0.5,
        )
        call.define(
            RATIO=op.sampling_ratio,
            AT_LEAST_ONE=op.aligned_mode is AlignedMode.ASYMMETRIC,
            MAXIMUM=op.mode is RoiMode.MAX,
            OF_PARTS=op.onnx_maximum,
        )


@kernel(ROIPooling)
class RoiPoolingRef(SingleLaunch):
    """One work-item computes one bin of one channel."""

    def refuses(self, node: GpuNode, target: Target) -> str:
        """Floats of any layout."""
        return unless((_is_float(node), NO_FLOATS))

    def describe(self, call: Call, op: ROIPooling, mode: Mode) -> None:
        """Coordinates: region, channel, bin."""
        _describe_regions(call)
        call.scalars(SCALE=float(op.spatial_scale))
        call.define(BILINEAR=op.method == "bilinear")


@kernel(PSROIPooling)
class PsRoiPoolingRef(SingleLaunch):
    """One work-item computes one bin of one output channel."""

    def refuses(self, node: GpuNode, target: Target) -> str:
        """Floats; the number of samples must be bounded."""
        op = node.operation(PSROIPooling)
        few = max(op.spatial_bins_x, op.spatial_bins_y) <= MAX_SAMPLES
        return unless((_is_float(node), NO_FLOATS), (few, _SAMPLES))

    def describe(self, call: Call, op: PSROIPooling, mode: Mode) -> None:
        """Coordinates: region, output channel, bin."""
        _describe_regions(call)
        call.scalars(
            SCALE=float(op.spatial_scale), SAMPLES_X=op.spatial_bins_x, SAMPLES_Y=op.spatial_bins_y
        )
        call.define(BILINEAR=op.mode == "bilinear")


@kernel(DeformablePSROIPooling)
class DeformablePsRoiPoolingRef(SingleLaunch):
    """One work-item computes one bin of one output channel."""

    def refuses(self, node: GpuNode, target: Target) -> str:
        """Floats; the number of samples must be bounded, and offsets there for every region."""
        op, rois = node.operation(DeformablePSROIPooling), node.inputs[1]
        offsets = node.own_inputs[2].shape if len(node.own_inputs) > 2 else None
        parts = (op.part_size, op.part_size)
        whole = offsets is None or (
            offsets[0] >= rois.shape[0] and offsets[1] >= 2 and offsets[2:] == parts
        )
        few = max(op.spatial_bins_x, op.spatial_bins_y) <= MAX_SAMPLES
        return unless(
            (_is_float(node), NO_FLOATS),
            (few, _SAMPLES),
            (whole, "there are not offsets for every region"),
        )

    def describe(self, call: Call, op: DeformablePSROIPooling, mode: Mode) -> None:
        """Coordinates: region, output channel, bin."""
        inputs = call.node.own_inputs
        _describe_regions(call)
        call.scalars(
            SCALE=float(op.spatial_scale), SAMPLES_X=op.spatial_bins_x, SAMPLES_Y=op.spatial_bins_y
        )
        call.define(MOVED=len(inputs) > 2)
        if len(inputs) > 2:
            call.tensor("IN2", inputs[2])
            pairs = max(inputs[2].shape[1] // 2, 1)
            call.scalars(DEVIATION=float(op.trans_std), PAIRS=pairs)
            call.scalars(PARTS=op.part_size, GROUP=max(op.output_dim // pairs, 1))


@kernel(ROIAlignRotated)
class RoiAlignRotatedRef(SingleLaunch):
    """One work-item averages one bin of one channel."""

    def refuses(self, node: GpuNode, target: Target) -> str:
        """Floats; the number of samples must be bounded."""
        few = node.operation(ROIAlignRotated).sampling_ratio <= MAX_SAMPLES
        return unless((_is_float(node), NO_FLOATS), (few, _SAMPLES))

    def describe(self, call: Call, op: ROIAlignRotated, mode: Mode) -> None:
        """Coordinates: region, channel, bin."""
        batches = call.node.inputs[2]
        _describe_regions(call)
        call.tensor("IN2", batches, [tuple(range(batches.rank))])
        call.scalars(SCALE=float(op.spatial_scale))
        call.define(RATIO=op.sampling_ratio, TURN=-1 if op.clockwise_mode else 1)
