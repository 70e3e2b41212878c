"""What all tests share: the plugins, and how hypothesis runs.

Fixtures stand in the conftest.py of the folder that needs them.
"""

import signal

from hypothesis import settings
from sterna._grpc_experiments import choose_experiments

# As the entry points do, before anything imports grpc: what is tested is what runs.
choose_experiments()

# A shell that starts a run in the background has it ignore SIGINT, and commands started by tests would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)

pytest_plugins = [
    "tests.plugins.tiers",
    "tests.plugins.covers",
    "tests.plugins.slow_callbacks",
    "tests.plugins.loose_ends",
    "tests.plugins.api_server",
    "tests.plugins.order",
    "tests.support.system_calls",
]

# No deadline for one example: on a busy machine it would say more about the machine. A failure prints what repeats it.
settings.register_profile("sterna", deadline=None, print_blob=True)
settings.load_profile("sterna")
