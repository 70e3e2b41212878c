"""How open files are shared out between clients and the broker itself."""

import pytest
from sterna_broker.descriptors import shares


@pytest.mark.parametrize(
    ("files", "messaging", "monitor"), [(1_048_576, 1_048_256, 64), (1_024, 704, 64), (256, 96, 32), (2, 1, 0)]
)
def test_clients_get_what_the_broker_does_not_need_itself(files: int, messaging: int, monitor: int) -> None:
    found = shares(files, connections=10)
    assert (found.messaging, found.monitor) == (messaging, monitor)
    assert found.messaging + found.monitor < files
