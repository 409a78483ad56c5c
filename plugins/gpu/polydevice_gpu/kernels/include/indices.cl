// What indices name, negative ones counting from the end.
static inline int wrapped(long index, int size) { return (int)(index < 0 ? index + size : index); }
// -1 for what lies outside.
static inline int inside(long index, int size) {
    if (index < 0) index += size;
    return index >= 0 && index < size ? (int)index : -1;
}
