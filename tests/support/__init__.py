"""Real servers for tests, and what is done where they cannot be had."""
