"""Snapshots of a broker's store, and the audits over them.

`schema` says which tables a snapshot has, `snapshots` writes, reads, verifies and prunes them, `exporting` takes one
from a broker, `spark` reads them into Spark. Everything here judges brokers from outside: nothing of broker, operator
or engine is imported, but for the engine's evaluator of selectors where an audit needs it.
"""
