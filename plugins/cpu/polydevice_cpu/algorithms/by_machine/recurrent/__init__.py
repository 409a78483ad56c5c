"""Steps of recurrent layers by machine code for AVX-512: products, functions and states in one."""
