"""The base of all models, and the types of fields that several kinds share."""

import re
from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from typing import Annotated, Any, ClassVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    ValidationInfo,
    WithJsonSchema,
)
from pydantic.alias_generators import to_camel
from pydantic.config import JsonDict
from pydantic_core import CoreSchema, PydanticCustomError

from sterna_resources import descriptions, names
from sterna_resources.rules import KEYWORD, Rule, of_field

# The largest integer that JSON carries safely everywhere (JavaScript's), and the bound of every size and count.
INTEGER_MAX = 2**53 - 1
# A hundred years: the bound of every duration, so that a time in milliseconds cannot overflow.
DURATION_MS_MAX = 100 * 366 * 24 * 3600 * 1000
SELECTOR_CHARACTERS_MAX = 65_536
QUANTITY_CHARACTERS_MAX = 32


STANDING: Mapping[str, bool] = {"is_standing": True}
"""What is validated with this as its context was accepted already."""


def is_standing(info: ValidationInfo) -> bool:
    """Whether this was accepted already: by a rule that came later, what has been working all the time is not refused.

    Otherwise an upgrade would take everything that belongs to it from whoever manages it.
    """
    return bool((info.context or {}).get("is_standing"))


# Of a part that may be empty, which is not the same as absent: whoever applies it server-side applies the whole of it.
# Field by field, taking its last one away would leave `null` there, which is refused.
ATOMIC: JsonDict = {"x-kubernetes-map-type": "atomic"}


class Model(BaseModel):
    """A part of a manifest: camelCase outside, nothing unknown, nothing converted on the quiet, immutable."""

    RULES: ClassVar[tuple[Rule, ...]] = ()
    """What Kubernetes checks of this part as a whole. A subclass has the rules of its base, too."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        populate_by_name=True,
        extra="forbid",
        strict=True,
        frozen=True,
        defer_build=True,
    )

    def written(self) -> dict[str, Any]:
        """The fields that were given, as the manifest writes them."""
        return self.model_dump(by_alias=True, exclude_unset=True, mode="json")

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        described = handler.resolve_ref_schema(handler(core_schema))
        for name, text in descriptions.of_fields(cls).items():
            if name in cls.model_fields:
                described["properties"][cls.model_fields[name].alias or name].setdefault("description", text)
        rules = [rule for base in reversed(cls.__mro__) for rule in vars(base).get("RULES", ())]
        if rules:
            described[KEYWORD] = [rule.as_dict() for rule in rules]
        return described


def _refuse(fault: str | None) -> None:
    if fault is not None:
        raise PydanticCustomError("invalid_name", "{fault}", {"fault": fault})


def _check_name(text: str) -> str:
    _refuse(names.name_fault(text) or names.reserved_fault(text))
    return text


def _check_dead_letter_queue(text: str) -> str:
    return text if text == names.UNDELIVERED else _check_name(text)


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


def _check_lookup_name(text: str) -> str:
    _refuse(names.lookup_fault(text))
    return text


def check_aliases(own: str, aliases: list[str]) -> None:
    """That what is looked up by its own name has no alias that says the same."""
    if own in aliases:
        _refuse(f"'{own}' stands in aliases, and is the own name already")


def _check_distinct(texts: list[str]) -> list[str]:
    if again := next((text for number, text in enumerate(texts) if text in texts[:number]), None):
        raise PydanticCustomError("twice", "{text} is named twice", {"text": again})
    return texts


def _check_broker_name(text: str) -> str:
    if any(character in ".:/ \t" or not character.isprintable() for character in text):
        _refuse("may not hold dots, colons, slashes, blanks or control characters: it is part of message ids")
    return text


def _check_time(text: str) -> str:
    try:
        if not re.fullmatch(_TIME_PATTERN, text):
            raise ValueError(text)
        datetime.fromisoformat(text)
    except ValueError:
        raise PydanticCustomError("time", "must be a time such as 2030-01-31T18:00:00Z") from None
    return text


def _check_quantity(value: Any) -> Any:
    if (isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= INTEGER_MAX) or (
        isinstance(value, str) and len(value) <= QUANTITY_CHARACTERS_MAX and _QUANTITY.fullmatch(value)
    ):
        return value
    raise PydanticCustomError("quantity", "must be an amount such as 10Gi, 500m or 2")


def amount(quantity: str | int) -> Decimal:
    """What a quantity says, as a number: `1Ki` is 1024, `500m` a half.

    Raises:
        ValueError: it is none.
    """
    found = _QUANTITY.fullmatch(str(quantity))
    if found is None:
        raise ValueError(f"{quantity} is no amount such as 10Gi, 500m or 2")
    unit = found[2] or ""
    base, power = (1024, "KMGTPE".index(unit[0]) + 1) if unit.endswith("i") else (1000, _POWERS[unit])
    return Decimal(str(quantity).removesuffix(unit)) * Decimal(base) ** power


# Of the units of a thousand.
_POWERS = {"m": -1, "": 0, "k": 1, "M": 2, "G": 3, "T": 4, "P": 5, "E": 6}

# Narrower than the format that Kubernetes checks (small letters, commas), so that both take the same.
_TIME_PATTERN = (
    "[1-9][0-9]{3}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}([.][0-9]+)?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])"
)
_QUANTITY_PATTERN = r"[0-9]+(\.[0-9]{1,9})?(m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)?"
_QUANTITY = re.compile(_QUANTITY_PATTERN)

_COMMON_RULES = (
    Rule(
        "!self.startsWith('.') && !self.endsWith('.') && !self.contains('..')",
        "dots stand between elements, never first, last or doubled",
    ),
    Rule(
        names.length_rule("self"),
        f"at most {names.ELEMENTS_MAX} elements of {names.ELEMENT_CHARACTERS_MAX} characters; in all the "
        f"fewer characters the more elements: {names.characters_max(2)} with two, "
        f"{names.characters_max(names.ELEMENTS_MAX)} with {names.ELEMENTS_MAX}",
    ),
    Rule("!self.startsWith('$')", "names that begin with $ belong to the broker"),
    Rule(
        f"!self.startsWith('TMP.') || self == '{names.TEMPORARY_SETTINGS}'",
        f"below TMP there is only {names.TEMPORARY_SETTINGS}, the settings of temporary destinations",
    ),
)
_PATTERN_RULES = (
    *_COMMON_RULES,
    Rule(
        "self.split('.').all(e, e == '*' || e == '>' || !(e.contains('*') || e.contains('>')))",
        "a wildcard (* or >) is a whole element",
    ),
    Rule("!self.contains('>.')", "> is allowed as the last element only"),
)
_SOURCE_RULES = (
    *_PATTERN_RULES,
    Rule(
        f"self != '{names.TEMPORARY_SETTINGS}'",
        f"{names.TEMPORARY_SETTINGS} holds the settings of temporary destinations and stands for no destination",
    ),
)
_NAME_RULES = (
    *_COMMON_RULES,
    Rule("!self.contains('*') && !self.contains('>')", "the name of one destination is needed here, no wildcard"),
)
_DEAD_LETTER_RULES = (
    *(rule for rule in _NAME_RULES if not rule.rule.startswith("!self.startsWith('$')")),
    Rule(
        f"!self.startsWith('$') || self == '{names.UNDELIVERED}'",
        f"of the names that begin with $ only {names.UNDELIVERED} may stand here",
    ),
)


def _bounded(text_max: int, *rules: Rule) -> Any:
    return Field(min_length=1, max_length=text_max, json_schema_extra=of_field(*rules) if rules else None)


def _matching(pattern: str, text_max: int) -> Any:
    return Field(min_length=1, max_length=text_max, pattern=f"^{pattern}$")


# The name of one destination: no wildcards.
DestinationName = Annotated[str, _bounded(names.NAME_CHARACTERS_MAX, *_NAME_RULES), AfterValidator(_check_name)]
# A queue of one's own, or the broker's for what cannot be delivered.
DeadLetterQueue = Annotated[
    str, _bounded(names.NAME_CHARACTERS_MAX, *_DEAD_LETTER_RULES), AfterValidator(_check_dead_letter_queue)
]
# A name or a pattern, `TMP.>` included: what a Queue or Topic may be called.
DestinationPattern = Annotated[
    str, _bounded(names.NAME_CHARACTERS_MAX, *_PATTERN_RULES), AfterValidator(_check_pattern)
]
# A name or a pattern that stands for destinations: what a bridge or subscription may take from.
SourcePattern = Annotated[
    str, _bounded(names.NAME_CHARACTERS_MAX, *_SOURCE_RULES), AfterValidator(_check_usable_pattern)
]
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
# The name of a namespace, a listener, or what else becomes a label in the domain name system.
DnsLabel = Annotated[str, Field(min_length=1, max_length=63, pattern="^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")]
# The name of a durable subscription, or a client id.
Label = Annotated[str, _bounded(names.SUBSCRIPTION_CHARACTERS_MAX), AfterValidator(_check_label)]
# A name under which something is looked up.
LookupName = Annotated[
    str,
    Field(
        min_length=1,
        max_length=names.LOOKUP_NAME_CHARACTERS_MAX,
        json_schema_extra={
            "pattern": r"^[^$*>\p{C}\p{Z}][^*>\p{C}\p{Z}]*$",
            **of_field(Rule("!self.contains('://')", "a name to look up may not hold ://")),
        },
    ),
    AfterValidator(_check_lookup_name),
]
ALIASES_MAX = 16
# More names of one thing, as EMS has them in jndinames (EMS-CLI-B15).
Aliases = Annotated[
    list[LookupName],
    Field(max_length=ALIASES_MAX, json_schema_extra={"x-kubernetes-list-type": "set"}),
    AfterValidator(_check_distinct),
]
# A broker's name, as it stands in message ids.
BrokerName = Annotated[
    str,
    Field(min_length=1, max_length=64, json_schema_extra={"pattern": r"^[^.:/\p{C}\p{Z}]+$"}),
    AfterValidator(_check_broker_name),
]
# A selector's text. Its grammar belongs to the engine, which checks it when the manifest is applied.
Selector = Annotated[str, Field(max_length=SELECTOR_CHARACTERS_MAX)]
# A moment, as RFC 3339 writes it.
Time = Annotated[
    str,
    Field(max_length=40, json_schema_extra={"format": "date-time", "pattern": f"^{_TIME_PATTERN}$"}),
    AfterValidator(_check_time),
]
# An amount as Kubernetes writes it: a whole number, or a text such as 10Gi or 500m.
Quantity = Annotated[
    int | str,
    BeforeValidator(_check_quantity),
    WithJsonSchema(
        {
            "anyOf": [{"type": "integer"}, {"type": "string"}],
            "x-kubernetes-int-or-string": True,
            "minimum": 0,
            "maximum": INTEGER_MAX,
            "maxLength": QUANTITY_CHARACTERS_MAX,
            "pattern": f"^{_QUANTITY_PATTERN}$",
        }
    ),
]

Count = Annotated[int, Field(ge=0, le=INTEGER_MAX)]
Size = Annotated[int, Field(ge=0, le=INTEGER_MAX)]
DurationMs = Annotated[int, Field(ge=0, le=DURATION_MS_MAX)]


def section(model: type[Model]) -> Any:
    """A field that holds a group of fields which all have defaults: absent is the same as `{}`."""
    return Field(default_factory=model, json_schema_extra={"x-sterna-section": True})
