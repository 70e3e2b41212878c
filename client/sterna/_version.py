"""The one place where the version stands; the engine's Cargo.toml repeats it, and `make lint` compares the two."""

__version__ = "0.1.0"
