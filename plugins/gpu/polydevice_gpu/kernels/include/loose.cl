// Vectors at any address, which processors read and write at once. PoCL 3.1 makes four loads of
// vload16 and sixteen stores of vstore16 of bytes: a tenth of a convolution of bytes, and more.
#define LOOSE(T, size) LOOSE_OF(T##2, size) LOOSE_OF(T##4, size) LOOSE_OF(T##8, size) LOOSE_OF(T##16, size)
#define LOOSE_OF(V, size) typedef V loose_##V __attribute__((aligned(size)));
LOOSE(char, 1)
LOOSE(uchar, 1)
LOOSE(short, 2)
LOOSE(ushort, 2)
LOOSE(int, 4)
LOOSE(uint, 4)
LOOSE(float, 4)
LOOSE(long, 8)
LOOSE(ulong, 8)
