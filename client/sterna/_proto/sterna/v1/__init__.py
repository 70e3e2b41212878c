"""Made by `make generate` from proto/; not part of the SDK's public interface."""
