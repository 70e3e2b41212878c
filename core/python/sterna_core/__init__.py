"""The engine of the Sterna broker, compiled. Only the broker imports it; everything here is unstable."""

from sterna_core._core import Engine, Selector, __version__, selector_check
from sterna_core.errors import EngineError, SelectorError, StoreError

__all__ = ["Engine", "EngineError", "Selector", "SelectorError", "StoreError", "__version__", "selector_check"]
