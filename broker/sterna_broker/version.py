"""The version that the broker tells of itself: the distribution's."""

from sterna import __version__

VERSION = __version__
