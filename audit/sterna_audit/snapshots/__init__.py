"""Snapshots in a folder or an object store.

`stores` is the storage, `layout` the names, `manifests`, `signed_json` and `keys` what makes files a snapshot, `chains`
and `anchors` what links it to others; `writing`, `reading` and `pruning` are done with it, and `findings` what is wrong.
"""
