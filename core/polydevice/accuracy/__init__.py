"""The accuracy guard: networks in less than f32 whose outputs stay near those in f32."""

from __future__ import annotations

from polydevice.accuracy.guard import guarded, is_trying

__all__ = ["guarded", "is_trying"]
