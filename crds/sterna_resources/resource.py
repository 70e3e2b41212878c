"""What all kinds have in common: the envelope around a spec."""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, Field

from sterna_resources.fields import Model
from sterna_resources.metadata import Metadata
from sterna_resources.status import Status

GROUP = "sterna.dev"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"


class Resource(Model):
    """A manifest. Each kind narrows `kind` and adds its `spec`."""

    PLURAL: ClassVar[str]
    """How people write several of the kind, in commands and addresses."""

    STATUS: ClassVar[type[Status]] = Status
    """What the operator says of an object of the kind, in Kubernetes."""

    api_version: Literal["sterna.dev/v1alpha1"]
    """The version of the manifest's form: `sterna.dev/v1alpha1`."""

    kind: str
    """What the manifest describes."""

    metadata: Metadata
    """The object's name and its notes."""

    status: Annotated[
        dict[str, Any] | None,
        AfterValidator(lambda _: None),
        Field(json_schema_extra={"x-kubernetes-preserve-unknown-fields": True}),
    ] = None
    """What a broker says of the object. Taken so that what `sterna get` prints can be applied, and not looked at."""

    @property
    def subject(self) -> str:
        """What it is known by in the broker: a destination's own name, or the object's name."""
        return self.metadata.name

    @property
    def claim(self) -> str:
        """The name that the object claims in its cluster, among those of its kind: only one object may have it."""
        return self.subject

    @property
    def label(self) -> str:
        """How messages name it."""
        return f"{self.kind} {self.subject}"

    def document(self) -> dict[str, Any]:
        """The manifest as it was written, defaults left out, in the customary order."""
        written = self.written()
        written.update(apiVersion=API_VERSION, kind=self.kind)
        return {key: written[key] for key in ("apiVersion", "kind", "metadata", "spec") if key in written}
