"""The gRPC side: the session stream, the unary calls, administration, health and reflection."""
