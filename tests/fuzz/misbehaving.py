"""A job that ends its process, spins, or waits for ever: for the tests of what watches over it."""

from __future__ import annotations

import os
import time


class Misbehaving:
    """Does what it says as soon as the child asks for its device."""

    def __init__(self, how: str) -> None:
        self.how = how

    @property
    def device(self) -> str:
        if self.how == "ends":
            os._exit(7)
        while self.how == "spins":
            pass
        time.sleep(3600)
        return ""
