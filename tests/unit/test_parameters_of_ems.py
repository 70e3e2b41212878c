"""The settings of a broker say which parameter of EMS each replaces, so that somebody who has those finds them."""

from pathlib import Path

import pytest

REFERENCE = Path(__file__).parents[2] / "docs/reference/manifests.md"

PARAMETERS = {
    "name": "server",
    "listeners.messaging": "listen",
    "listeners.monitor": "monitor_listen",
    "stores": "stores.conf",
    "flowControl": "flow_control",
    "limits.connections": "max_connections",
    "limits.messageBytes": "max_client_msg_size",
    "limits.selectorBytes": "selector_logical_operator_limit",
    "log.segmentBytes": "file_minimum",
    "log.cacheBytes": "max_msg_memory",
    "log.volatileBytes": "max_msg_memory",
}


@pytest.mark.parametrize("field", PARAMETERS)
def test_a_setting_says_which_parameter_of_ems_it_replaces(field: str) -> None:
    section = REFERENCE.read_text().partition("\n## Broker\n")[2].partition("\n## ")[0]
    [line] = [line for line in section.splitlines() if line.startswith(f"| `spec.{field}` |")]
    assert f"`{PARAMETERS[field]}`" in line.partition("In EMS: ")[2]
