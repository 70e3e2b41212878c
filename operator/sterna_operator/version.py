"""The operator's version: that of the distribution it came with."""

from importlib.metadata import version

VERSION = version("sterna")
