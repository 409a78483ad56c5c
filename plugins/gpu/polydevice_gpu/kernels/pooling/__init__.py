"""Windows and regions of a feature map, pooled."""
