"""The device-name grammar."""

from __future__ import annotations

import pytest

from polydevice.device_name import DeviceName
from polydevice.errors import DeviceNameError


@pytest.mark.parametrize("text", ["CPU", "GPU.0", "GPU.1", "HETERO:GPU.1,CPU", "GPU.0.1", "MY_NPU"])
def test_round_trip(text):
    assert str(DeviceName.parse(text)) == text


def test_parts():
    name = DeviceName.parse("HETERO:GPU.0.1,CPU")
    assert name.family == "HETERO"
    assert [(m.family, m.device_id) for m in name.members] == [("GPU", "0.1"), ("CPU", "")]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is empty"),
        ("GPU.", "'' behind '.'"),
        (".1", "empty item"),
        ("HETERO:", "lists no devices"),
        ("HETERO:GPU,,CPU", "empty item"),
        ("HETERO:GPU, CPU", "no blanks"),
        ("HETERO:GPU,GPU", "lists GPU twice"),
        ("HETERO:MULTI:GPU", "'MULTI:GPU' is not a device"),
        (":CPU", "before ':'"),
        ("GPU/0", "'GPU/0' is not a device"),
        ("1GPU", "is not a device"),
        ("GPU.a b", "behind '.'"),
        ("CPU\n", "is not a device"),
    ],
)
def test_errors_say_where(text, words):
    with pytest.raises(DeviceNameError) as caught:
        DeviceName.parse(text)
    assert words in str(caught.value)


def test_not_a_string():
    with pytest.raises(DeviceNameError, match="string"):
        DeviceName.parse(3)  # type: ignore[arg-type]
