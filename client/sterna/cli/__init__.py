"""The `sterna` command: one file a command."""
