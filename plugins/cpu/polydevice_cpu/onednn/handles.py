"""Handles: what oneDNN has of a primitive."""

from __future__ import annotations

import ctypes as c

from polydevice_cpu.onednn.descriptor import required


class Handles:
    """What oneDNN has of a primitive: its descriptor and, once there is code, itself.

    Both are destroyed with this, which nobody finds by a weak reference. A `__del__` of Primitive's
    would run while it is still handed out, to a thread that would execute what is gone.

    Attributes:
        description: of the primitive; who compiles puts another one in its place.
        primitive: of nothing until there is code.
    """

    __slots__ = ("_own", "description", "library", "primitive")

    def __init__(self, description: c.c_void_p) -> None:
        self.library = required()
        self.description = description
        self.primitive = c.c_void_p()
        self._own: c.c_void_p | None = description

    def compile(self) -> None:
        """Generate the code; from then on `description` is the copy that the primitive has.

        That which it was made from is let go: up to 60 kB of a convolution of bytes.
        """
        self.library.call("primitive_create", c.byref(self.primitive), self.description)
        copy = c.c_void_p()
        self.library.call("primitive_get_primitive_desc", self.primitive, c.byref(copy))
        self.description = copy
        self._let_go()

    def _let_go(self) -> None:
        own, self._own = self._own, None
        if own is not None:
            self.library.destroy("primitive_desc_destroy", own)

    def __del__(self) -> None:
        if self.primitive.value is not None:
            self.library.destroy("primitive_destroy", self.primitive)
        self._let_go()
