"""The operator: turns Sterna's objects in Kubernetes into running brokers and live configuration.

kopf supplies lifecycle, and watches of what is made for clusters: `watching` turns its events into entries
of our own `work_queue`, and `following` those of our own kinds. `worker` takes one key after the
other, `reconcile` gathers what is observed and asks the kind's pure function for a plan (`kinds`, `plans`), and `apply`
executes it, step by step, each step harmless to repeat. `kube` and `store` are the only modules that speak to the API
server and to etcd; both refuse to write for somebody who has ceased to be the leader (`leader`).
"""
