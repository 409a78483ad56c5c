"""What ONNX files hold, as our own values: bytes, tensors, types and attributes."""
