"""What is told about a network and a machine: layers, graphs, dumps, troubles."""
