"""DeviceSuite: what every device must do, whatever it computes.

A device author inherits it; ten lines are a whole test file::

    from polydevice.testing.device_suite import DeviceSuite

    class TestNpu(DeviceSuite):
        device = "NPU"

The suite runs ``y = relu(x * scale + bias)``. A device without these operations overrides `network`
and `answer`.
"""

from __future__ import annotations

from polydevice.testing.suite.description import Description
from polydevice.testing.suite.ending import Ending
from polydevice.testing.suite.running import Running
from polydevice.testing.suite.subject import BIAS, SCALE, SHAPE, random_input

__all__ = ["BIAS", "SCALE", "SHAPE", "DeviceSuite", "random_input"]


class DeviceSuite(Description, Running, Ending):
    """Tests of one device. Subclasses set `device`; what else they may override is `Subject`'s."""
