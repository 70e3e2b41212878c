"""All generated code, made by one command: `python -m tools.generate`, or with `--check` compared instead of written.

A generator (tools/generate/generators.py) names what it reads, what it makes, and a function that makes it below a
folder that it is given. Writing and checking are then the same act with a different ending, so that what is checked is
what would be written. A check is skipped while neither inputs nor outputs have changed since it last passed.
"""
