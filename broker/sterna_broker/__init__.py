"""The node: a gRPC server around the engine."""
