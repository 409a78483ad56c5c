"""The options of ``polydevice bench``: how they are written, and what each does."""
