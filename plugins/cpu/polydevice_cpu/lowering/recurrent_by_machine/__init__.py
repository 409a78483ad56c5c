"""What recurrent layers are lowered to where machine code computes their steps."""
