"""What operations are made of: one file per stem of `polydevice.ops`; none knows a device."""
