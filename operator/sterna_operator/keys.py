"""What names an object throughout the operator: the entry of the work queue, of indexes, of log lines."""

from dataclasses import dataclass


@dataclass(frozen=True, order=True, slots=True)
class Key:
    """An object by kind, namespace and name. Which version of it is meant is decided when it is looked at."""

    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}"
