"""What all tests share: the plugins. Fixtures stand in the conftest.py of the folder that needs them."""

pytest_plugins = ["tests.plugins.covers", "tests.plugins.slow_callbacks", "tests.plugins.loose_ends"]
