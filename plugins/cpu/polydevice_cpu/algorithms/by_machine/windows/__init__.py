"""Machine code for windows of pictures: convolutions and pools, of any size."""
