"""Networks on a cluster of Ray's: over data sets, and behind Ray Serve.

It needs the optional dependencies ``polydevice[ray]``; Ray is imported when a function is called.
"""

from polydevice.ray.deployment import deployment
from polydevice.ray.predict import predict

__all__ = ["deployment", "predict"]
