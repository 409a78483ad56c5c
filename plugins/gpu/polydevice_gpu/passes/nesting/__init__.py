"""What the device needs to know of loops and Ifs: their bodies as graphs of their own."""
