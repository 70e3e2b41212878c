"""The house's own small programs: what `make` calls to set up, generate, check and report.

They run inside the repository only and are in no distribution. Each module is a command (`python -m tools.tidy`) and
opens with what it is for. Nothing here is imported by the packages; tests may import it.
"""
