"""The evaluator of selectors by itself: what audits use to judge what a broker judged."""

from sterna_core._core import Selector, selector_check
from sterna_core.errors import SelectorError

__all__ = ["Selector", "SelectorError", "selector_check"]
