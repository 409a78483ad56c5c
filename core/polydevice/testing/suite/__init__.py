"""The tests of `polydevice.testing.device_suite`, by what they are about."""
