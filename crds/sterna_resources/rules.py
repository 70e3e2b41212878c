"""Rules that Kubernetes checks before it keeps an object, in its expression language (CEL).

A rule stands beside the validator that says the same in Python, on the same model or field; a table of examples is put
to both. What only a change can break (an immutable field) is a rule alone: a manifest by itself cannot tell.

`self` is the value that carries the rule, `oldSelf` the one that is there. A comparison with `oldSelf` on a field that
may be absent is not enough, since Kubernetes leaves the rule out when either side is absent; so such rules stand on
the spec or the whole object, which is always there, and say what absence means.
"""

from dataclasses import dataclass
from typing import Any

KEYWORD = "x-kubernetes-validations"


@dataclass(frozen=True)
class Rule:
    """An expression that must be true, and what is said when it is not.

    `field`: the path of the field that is to blame, below the value that carries the rule, such as `.spec.name`.
    """

    rule: str
    message: str
    field: str = ""

    def as_dict(self) -> dict[str, str]:
        """The rule as a schema writes it."""
        where = {"fieldPath": self.field} if self.field else {}
        return {"rule": self.rule, "message": self.message, **where}


def of_field(*rules: Rule) -> dict[str, Any]:
    """What a field's `json_schema_extra` holds for its rules."""
    return {KEYWORD: [rule.as_dict() for rule in rules]}


def unchanged(path: str) -> str:
    """That a field that may be absent stays as it is, absent or not; `path` without `self.`.

    No default is put in for what is absent: the server would no longer know how long the text can be, and estimate the
    cost of comparing it without bounds.
    """
    here, there = f"self.{path}", f"oldSelf.{path}"
    return f"has({here}) == has({there}) && (!has({here}) || {here} == {there})"


# That the name an object goes by stays, be it `spec.name` or, without that, `metadata.name`.
SAME_NAME = (
    "has(self.spec.name) "
    "? (has(oldSelf.spec.name) ? self.spec.name == oldSelf.spec.name : self.spec.name == self.metadata.name) "
    ": (!has(oldSelf.spec.name) || oldSelf.spec.name == self.metadata.name)"
)

# That what is looked up by its name has no alias that says the same.
OTHER_NAMES = Rule(
    "!has(self.spec.aliases) || !((has(self.spec.name) ? self.spec.name : self.metadata.name) in self.spec.aliases)",
    "an alias is the own name already",
    ".spec.aliases",
)


def exactly_one(*fields: str) -> str:
    """That one of the fields is there and no other."""
    return f"[{', '.join(f'has(self.{field})' for field in fields)}].filter(present, present).size() == 1"
