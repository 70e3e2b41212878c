"""The Python SDK of Sterna."""

from sterna._version import __version__

__all__ = ["__version__"]
