"""REST: the protocol as JSON and binary tensors over HTTP."""
