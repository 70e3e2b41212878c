"""Measuring load: latencies, open-loop schedules and the loads themselves.

`sterna bench` and the project's own benchmarks share these, so that a figure of one can be compared with the other's.
Private to the project: nothing here is part of the SDK's interface.
"""
