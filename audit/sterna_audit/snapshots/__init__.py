"""Snapshots in a folder or an object store.

`stores` is the storage, `layout` the names, `manifests`, `signed_json`, `keys` what makes files a snapshot, `chains`
and `anchors` what links it to others; `writing`, `reading`, `pruning` are done with it, `findings` what is wrong.
"""
