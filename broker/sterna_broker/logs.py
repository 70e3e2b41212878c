"""Structured logs on stderr. No message bodies and no credentials are ever given to a logger."""

import logging
import sys
from typing import Any

import structlog


def configure(log_format: str, level: str) -> None:
    """Sets up logging for the process. `auto` is for people on a terminal and JSON lines elsewhere."""
    for_people = log_format == "console" or (log_format == "auto" and sys.stderr.isatty())
    # The plain form: the other shows the local variables of every frame, and a password may be among them.
    for_terminals = structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)
    renderer: Any = for_terminals if for_people else structlog.processors.JSONRenderer()
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelName(level.upper())),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
