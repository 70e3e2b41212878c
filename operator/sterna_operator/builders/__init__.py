"""What stands around a MessagingCluster in Kubernetes: pure functions from what is known to manifests.

`blueprint` holds what is known and how everything is called; each other module builds one sort of child. Nothing here
reads or writes anything; `kinds/messaging_cluster.py` decides what of it is applied, and when.
"""
