"""The broker as a member of a cluster: what it shares through etcd with the others and with the operator.

`view` mirrors what stands in etcd, `kept` keeps it on disk, `examined` turns configured objects into the set that
holds, `placement` decides homes and `homes` settles them by transactions, `statuses` and `registration` say how this
broker is, `deletions` and `draining` take things away, `configuration` and `desk` answer administrators and clients,
and `member` runs all of it. Only `member`, `homes`, `statuses`, `registration` and `configuration` talk to etcd.
"""
