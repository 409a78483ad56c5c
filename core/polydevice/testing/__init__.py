"""Suites and cases that devices, first-party and others, are tested with.

`device_suite.DeviceSuite` is what every device must do; `op_suite.OpSuite` what its operations must
answer; `op_case` the form of one case; `fake_device` a device that computes nothing.
"""

from __future__ import annotations

from polydevice.testing.custom_operation import check

__all__ = ["check"]
