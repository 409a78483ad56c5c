"""``polydevice bench``: measures a network the way benchmark_app does, and against its peers."""
