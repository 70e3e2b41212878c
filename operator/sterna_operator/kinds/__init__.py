"""What is peculiar to each kind, and the registry of kinds.

A kind is one module with a pure function `plan(desired, observed)` and an entry here. The topology kinds (those whose
whole effect is one record in etcd) share what is common in `topology`; MessagingCluster has children in Kubernetes and
observes them itself.
"""
