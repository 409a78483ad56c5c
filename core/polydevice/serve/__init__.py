"""A server for networks: the Open Inference Protocol over REST and gRPC, with dynamic batching.

It needs the optional dependencies ``polydevice[serve]``, and nothing here is imported before
``polydevice serve`` or ``polydevice.ray`` asks for it.
"""
