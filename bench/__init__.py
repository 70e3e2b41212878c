"""Measures Sterna against the goals of a two-core machine, lines B1 to B9, and against the machine's own limits.

`python -m bench` (or `make bench`) runs everything, prints a table and writes `results/latest.json`. Each line is a
module of `measures/`; brokers and clients run in processes of their own (`broker`, `clients`), the way users run them.
"""

from sterna._grpc_experiments import choose_experiments

# Before any of the modules imports grpc, in each of the processes: the clients and the echo run as our programs do, and
# `conditions` says which experiments that was.
choose_experiments()
