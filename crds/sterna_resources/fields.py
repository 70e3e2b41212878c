"""The base of all models, and the types of fields that several kinds share."""

from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel
from pydantic_core import PydanticCustomError

from sterna_resources import names

# The largest integer that JSON carries safely everywhere (JavaScript's), and the bound of every size and count.
INTEGER_MAX = 2**53 - 1
# A hundred years: the bound of every duration, so that a time in milliseconds cannot overflow.
DURATION_MS_MAX = 100 * 366 * 24 * 3600 * 1000
SELECTOR_CHARACTERS_MAX = 65_536


class Model(BaseModel):
    """A part of a manifest: camelCase outside, nothing unknown, nothing converted on the quiet, immutable."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        populate_by_name=True,
        extra="forbid",
        strict=True,
        frozen=True,
        use_attribute_docstrings=True,
    )

    def written(self) -> dict[str, Any]:
        """The fields that were given, as the manifest writes them."""
        return self.model_dump(by_alias=True, exclude_unset=True, mode="json")


def _refuse(fault: str | None) -> None:
    if fault is not None:
        raise PydanticCustomError("invalid_name", "{fault}", {"fault": fault})


def _check_name(text: str) -> str:
    _refuse(names.name_fault(text) or names.reserved_fault(text))
    return text


def _check_pattern(text: str) -> str:
    _refuse(names.pattern_fault(text) or names.reserved_fault(text))
    return text


def _check_usable_pattern(text: str) -> str:
    _check_pattern(text)
    if text == names.TEMPORARY_SETTINGS:
        _refuse(f"'{text}' holds the settings of temporary destinations and stands for no destination")
    return text


def _check_object_name(text: str) -> str:
    _refuse(names.object_name_fault(text))
    return text


def _check_label(text: str) -> str:
    _refuse(names.label_fault(text))
    return text


def _bounded(text_max: int) -> Any:
    return Field(min_length=1, max_length=text_max)


# The name of one destination: no wildcards.
DestinationName = Annotated[str, _bounded(names.NAME_CHARACTERS_MAX), AfterValidator(_check_name)]
# A name or a pattern, `TMP.>` included: what a Queue or Topic may be called.
DestinationPattern = Annotated[str, _bounded(names.NAME_CHARACTERS_MAX), AfterValidator(_check_pattern)]
# A name or a pattern that stands for destinations: what a bridge or subscription may take from.
SourcePattern = Annotated[str, _bounded(names.NAME_CHARACTERS_MAX), AfterValidator(_check_usable_pattern)]
# The name of an object, as Kubernetes takes it.
ObjectName = Annotated[
    str,
    Field(
        min_length=1,
        max_length=names.OBJECT_NAME_CHARACTERS_MAX,
        json_schema_extra={"pattern": f"^{names.OBJECT_NAME_PATTERN}$"},
    ),
    AfterValidator(_check_object_name),
]
# The name of a durable subscription, or a client id.
Label = Annotated[str, _bounded(names.SUBSCRIPTION_CHARACTERS_MAX), AfterValidator(_check_label)]
# A selector's text. Its grammar belongs to the engine, which checks it when the manifest is applied.
Selector = Annotated[str, Field(max_length=SELECTOR_CHARACTERS_MAX)]

Count = Annotated[int, Field(ge=0, le=INTEGER_MAX)]
Size = Annotated[int, Field(ge=0, le=INTEGER_MAX)]
DurationMs = Annotated[int, Field(ge=0, le=DURATION_MS_MAX)]
