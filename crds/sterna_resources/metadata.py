"""What every manifest says about itself."""

from typing import Annotated

from pydantic import Field

from sterna_resources.fields import DnsLabel, Model, ObjectName

_Annotation = Annotated[str, Field(max_length=65_536)]
_LabelValue = Annotated[str, Field(max_length=63)]
_Key = Annotated[str, Field(min_length=1, max_length=317)]


class Metadata(Model):
    """An object's name and its notes."""

    name: ObjectName
    """The object's name, unique in its kind. Where `spec.name` is absent it is the destination's name, too."""

    namespace: DnsLabel | None = None
    """The namespace in Kubernetes. A broker that reads the manifest from a folder does nothing with it."""

    labels: dict[_Key, _LabelValue] = Field(default_factory=dict, max_length=256)
    """Short marks for selecting objects; the broker keeps them and does nothing with them."""

    annotations: dict[_Key, _Annotation] = Field(default_factory=dict, max_length=256)
    """Longer notes; the broker keeps them and does nothing with them."""
