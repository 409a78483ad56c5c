"""What polydevice does with the processor itself: a few bytes of its code, and its instructions."""
