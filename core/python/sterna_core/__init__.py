"""The engine of the Sterna broker, compiled. Only the broker imports it; everything here is unstable."""

from sterna_core._core import __version__

__all__ = ["__version__"]
