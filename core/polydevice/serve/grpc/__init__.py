"""gRPC: the protocol as messages of protobuf."""
