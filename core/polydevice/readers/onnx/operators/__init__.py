"""Translators of ONNX operators to core operations, one module per family."""
