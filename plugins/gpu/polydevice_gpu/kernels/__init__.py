"""The kernels: what each computes (``.py``) beside how (``.cl``)."""
