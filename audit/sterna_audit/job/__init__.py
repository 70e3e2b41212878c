"""A whole run from one file: snapshots of brokers, audits over them, retention, and a result that fits into a status.

`config` is the file, `plan` what is needed to carry it out, `taking` takes snapshots, `runs` keeps results by their
runs' names, `result` is what a run says at its end, `running` goes through all of it. Nothing here knows Kubernetes.
"""
