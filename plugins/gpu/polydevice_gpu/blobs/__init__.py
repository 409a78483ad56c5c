"""Device memory that programs outside share: blobs and the contexts that make them."""
