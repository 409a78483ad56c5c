"""Where values lie in memory, once it is known which kernels make and read them."""
