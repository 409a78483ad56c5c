"""Reports: one self-contained HTML file about measured networks; ``polydevice report``."""
