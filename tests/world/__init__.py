"""The whole system in one process, from one seed.

SDK, brokers and engine are real; loop, network, disk and clocks are models. See docs/reliability.md, and
`python -m tests.world --help`.
"""
