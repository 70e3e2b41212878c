"""What a broker says of an object travels with its manifest and is no part of it."""

from sterna_resources import Queue


def test_a_status_is_taken_and_dropped() -> None:
    manifest = {"apiVersion": "sterna.dev/v1alpha1", "kind": "Queue", "metadata": {"name": "orders"}, "spec": {}}
    plain = Queue.model_validate(manifest)
    shown = Queue.model_validate({**manifest, "status": {"origin": "static", "statistics": {"messages": 3}}})
    assert shown.document() == plain.document() == manifest
    assert shown == plain
