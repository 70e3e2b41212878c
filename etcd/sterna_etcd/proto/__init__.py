"""The messages of etcd's v3 interface that are used here; `etcd_pb2` is made by `make generate` from etcd.proto."""
