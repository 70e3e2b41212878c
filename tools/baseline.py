"""The public surface as text, so that it changes only on purpose: the protos, and the SDK's names and signatures.

`tests/unit/test_public_surface.py` compares the text with tests/baselines/*.txt. When a change is meant,
`python -m tools.baseline --write` accepts it, and the difference is reviewed with the change that made it. `make
generate` does not do this: a generator that moved the baseline along would make the test unable to fail.
"""

import argparse
import difflib
import enum
import importlib
import inspect
import pkgutil
import re
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

from google.protobuf import descriptor_pb2
from google.protobuf.descriptor_pb2 import DescriptorProto, EnumDescriptorProto, FieldDescriptorProto

from tools.fingerprints import ROOT

FOLDER = ROOT / "tests" / "baselines"
COMMAND = "python -m tools.baseline --write"

_PROTOS = ("message", "messaging", "admin", "naming")


def _field(prefix: str, field: FieldDescriptorProto, owner: DescriptorProto) -> str:
    kind = field.type_name.lstrip(".") or FieldDescriptorProto.Type.Name(field.type).removeprefix("TYPE_").lower()
    if field.label == FieldDescriptorProto.LABEL_REPEATED:
        kind = f"repeated {kind}"
    if field.proto3_optional:
        kind = f"optional {kind}"
    elif field.HasField("oneof_index"):
        kind = f"oneof {owner.oneof_decl[field.oneof_index].name}: {kind}"
    return f"{prefix}.{field.name} = {field.number}: {kind}"


def _message(prefix: str, message: DescriptorProto) -> Iterator[str]:
    name = f"{prefix}.{message.name}"
    yield f"{name}: message"
    for field in message.field:
        yield _field(name, field, message)
    for reserved in message.reserved_range:
        yield f"{name}: reserved {reserved.start} to {reserved.end - 1}"
    for inner in message.nested_type:
        yield from _message(name, inner)
    for enumeration in message.enum_type:
        yield from _enumeration(name, enumeration)


def _enumeration(prefix: str, enumeration: EnumDescriptorProto) -> Iterator[str]:
    name = f"{prefix}.{enumeration.name}"
    yield f"{name}: enum"
    for value in enumeration.value:
        yield f"{name}.{value.name} = {value.number}"


def protos() -> str:
    """The wire contract: every message, field, enum value, service and method, a line each, sorted."""
    lines: list[str] = []
    for name in _PROTOS:
        module = importlib.import_module(f"sterna._proto.sterna.v1.{name}_pb2")
        file = descriptor_pb2.FileDescriptorProto()
        module.DESCRIPTOR.CopyToProto(file)
        for message in file.message_type:
            lines += _message(file.package, message)
        for enumeration in file.enum_type:
            lines += _enumeration(file.package, enumeration)
        for service in file.service:
            for method in service.method:
                takes, gives = ("stream " * streams for streams in (method.client_streaming, method.server_streaming))
                types = f"({takes}{method.input_type.lstrip('.')}) -> {gives}{method.output_type.lstrip('.')}"
                lines.append(f"{file.package}.{service.name}.{method.name}: rpc {types}")
    return "\n".join(sorted(lines)) + "\n"


def public_modules() -> list[ModuleType]:
    """`sterna` and those of its modules that declare `__all__`; the command line is no library."""
    import sterna

    found = [sterna]
    for info in pkgutil.iter_modules(sterna.__path__, "sterna."):
        if not info.name.rpartition(".")[2].startswith("_") and info.name != "sterna.cli":
            module = importlib.import_module(info.name)
            if hasattr(module, "__all__"):
                found.append(module)
    return found


def _signature(value: Any) -> str:
    try:
        text = str(inspect.signature(value))
    except (TypeError, ValueError):
        return "(...)"
    return re.sub(r" at 0x[0-9a-f]+", "", text)


def _class(name: str, cls: type) -> Iterator[str]:
    bases = ", ".join(base.__name__ for base in cls.__bases__ if base is not object)
    yield f"{name}: class({bases})"
    if issubclass(cls, enum.Enum):
        yield from (f"{name}.{member} = {value.value!r}" for member, value in cls.__members__.items())
    elif not issubclass(cls, BaseException):
        yield f"{name}{_signature(cls)}"
    for attribute, value in sorted(vars(cls).items()):
        if attribute.startswith("_") or issubclass(cls, enum.Enum):
            continue
        function = getattr(value, "__func__", value)
        if isinstance(value, property):
            yield f"{name}.{attribute}: property"
        elif inspect.isfunction(function):
            kind = "async " if inspect.iscoroutinefunction(function) else ""
            yield f"{name}.{attribute}: {kind}{_signature(function)}"


def sdk() -> str:
    """The SDK's public names: modules, classes with their methods, functions, values; a line each."""
    lines: list[str] = []
    for module in public_modules():
        for public in sorted(module.__all__):
            name, value = f"{module.__name__}.{public}", getattr(module, public)
            elsewhere = module.__name__ != "sterna" and inspect.isclass(value) and value.__module__ != module.__name__
            if elsewhere:
                lines.append(f"{name}: is {value.__module__}.{value.__qualname__}")
            elif inspect.isclass(value):
                lines += _class(name, value)
            elif callable(value):
                kind = "async " if inspect.iscoroutinefunction(value) else ""
                lines.append(f"{name}: {kind}{_signature(value)}")
            else:
                lines.append(f"{name}: {type(value).__name__}")
    return "\n".join(lines) + "\n"


SURFACES = {"protos": protos, "sdk": sdk}


def difference(surface: str) -> str:
    """How a surface differs from its baseline; empty when it does not."""
    file = FOLDER / f"{surface}.txt"
    accepted = file.read_text(encoding="utf-8") if file.is_file() else ""
    lines = difflib.unified_diff(
        accepted.splitlines(), SURFACES[surface]().splitlines(), "accepted", "now", lineterm="", n=0
    )
    return "\n".join(lines)


def main() -> int:
    """Prints what differs; with --write accepts it."""
    parser = argparse.ArgumentParser(prog="python -m tools.baseline", description="The public surface, as text.")
    parser.add_argument("--write", action="store_true", help="accept the surface as it is now")
    options = parser.parse_args()
    different = {surface: text for surface in SURFACES if (text := difference(surface))}
    for surface, text in different.items():
        print(text)
        if options.write:
            FOLDER.mkdir(exist_ok=True)
            (FOLDER / f"{surface}.txt").write_text(SURFACES[surface](), encoding="utf-8")
    return 0 if options.write or not different else 1


if __name__ == "__main__":
    sys.exit(main())
