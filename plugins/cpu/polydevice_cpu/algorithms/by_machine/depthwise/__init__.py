"""Depthwise convolutions that read and write bfloat16."""
