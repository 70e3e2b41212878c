"""The compiled module, as type checkers see it."""

__version__: str
