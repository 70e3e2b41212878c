"""Store: a label that destinations name, with what it promises and how much it may hold."""

from typing import Annotated, ClassVar, Literal, Self

from pydantic import AfterValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from sterna_resources.fields import Size
from sterna_resources.rules import SAME_NAME, Rule, of_field
from sterna_resources.topology import TopologyResource, TopologySpec

SYSTEM_STORES = {"$sys.failsafe": "sync", "$sys.nonfailsafe": "async"}
STORE_NAME_CHARACTERS_MAX = 64

StoreMode = Literal["sync", "async"]

_SYSTEM_NAMES = "[" + ", ".join(f"'{name}'" for name in SYSTEM_STORES) + "]"


def _check_store_name(text: str) -> str:
    if text.startswith("$") and text not in SYSTEM_STORES:
        fault = f"'{text}' begins with '$': of such stores there are only {' and '.join(SYSTEM_STORES)}"
        raise PydanticCustomError("store_name", "{fault}", {"fault": fault})
    return text


StoreName = Annotated[
    str,
    Field(
        min_length=1,
        max_length=STORE_NAME_CHARACTERS_MAX,
        json_schema_extra=of_field(
            Rule(
                f"!self.startsWith('$') || self in {_SYSTEM_NAMES}",
                f"of stores that begin with $ there are only {' and '.join(SYSTEM_STORES)}",
            )
        ),
    ),
    AfterValidator(_check_store_name),
]


def check_mode(name: str | None, mode: str | None) -> None:
    """Refuses another mode for a store of the system.

    Raises:
        PydanticCustomError: naming the store's own mode.
    """
    own = SYSTEM_STORES.get(name or "")
    if own is not None and mode not in (None, own):
        fault = f"{name} is always {own}: give the destinations another store"
        raise PydanticCustomError("store_mode", "{fault}", {"fault": fault})


def effective_mode(name: str, mode: str | None) -> str:
    """What holds: as written, or a system store's own."""
    return SYSTEM_STORES.get(name) or mode or "sync"


class StoreSpec(TopologySpec):
    """What a store promises and how much it may hold."""

    RULES: ClassVar[tuple[Rule, ...]] = tuple(
        Rule(
            f"!has(self.name) || self.name != '{name}' || !has(self.mode) || self.mode == '{mode}'",
            f"{name} is always {mode}: give the destinations another store",
            ".mode",
        )
        for name, mode in SYSTEM_STORES.items()
    )

    name: StoreName | None = Field(default=None, json_schema_extra={"x-sterna-default": "metadata.name"})
    """The name by which destinations call it (`spec.store`); `metadata.name` when absent. `$sys.failsafe` and
    `$sys.nonfailsafe` exist anyway and may be given a quota."""

    mode: StoreMode | None = None
    """`sync` (default): a message is confirmed when it is on disk. `async`: when it is accepted; it reaches the disk
    shortly after. The two system stores keep theirs, sync and async."""

    quota_bytes: Size = 0
    """The most bytes that the store's destinations may hold together, in each broker; 0: no quota."""

    deletion_policy: Literal["retain", "onlyIfEmpty"] = "retain"
    """What becomes of the store in the brokers when it is deleted in Kubernetes. `retain`: it stays as long as a
    destination names it. `onlyIfEmpty`: the deletion waits until none does."""

    @model_validator(mode="after")
    def _system_stores_keep_their_mode(self) -> Self:
        check_mode(self.name, self.mode)
        return self


class Store(TopologyResource):
    """A label that destinations name, with what it promises and how much it may hold."""

    PLURAL: ClassVar[str] = "stores"
    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            f"has(self.spec.name) || size(self.metadata.name) <= {STORE_NAME_CHARACTERS_MAX}",
            "metadata.name is too long for a store's name: give another in spec.name",
        ),
        Rule(
            SAME_NAME,
            "a store cannot be renamed: destinations call it by its name",
            ".spec.name",
        ),
    )

    kind: Literal["Store"] = "Store"
    """`Store`."""

    spec: StoreSpec = Field(default_factory=StoreSpec)
    """What it promises and how much it may hold."""

    @property
    def subject(self) -> str:
        """The store's own name."""
        return self.spec.name or self.metadata.name

    @property
    def effective_mode(self) -> str:
        """What holds: as written, or a system store's own."""
        return effective_mode(self.subject, self.spec.mode)

    @model_validator(mode="after")
    def _name_fits(self) -> Self:
        if len(self.subject) > STORE_NAME_CHARACTERS_MAX:
            fault = f"as the store's name: has {len(self.subject)} characters, at most {STORE_NAME_CHARACTERS_MAX}"
            raise PydanticCustomError("invalid_name", "{fault}", {"fault": fault})
        return self
