"""The `sterna` command: a face of the SDK and the admin client for people and scripts.

`main` starts it; `commands/` holds one module a command. Everything heavy (grpc, rich, yaml) is imported where it is
used, so that `sterna --version` and the help stay fast. Nothing else in the project may import this package.
"""
