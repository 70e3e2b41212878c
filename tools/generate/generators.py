"""What a generator is, and the list of all of them: the one place to add another."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tools.fingerprints import ROOT, files_below
from tools.generate import (
    argo_cd,
    chart_readmes,
    chart_schemas,
    cli_reference,
    compatibility,
    definitions,
    errors_reference,
    etcd_stubs,
    figures,
    kubernetes_reference,
    manifests,
    operator_rights,
    python_stubs,
    rust_stubs,
)


@dataclass(frozen=True)
class Generator:
    """One kind of generated code.

    `inputs` and `outputs` are files or folders, relative to the repository's root; everything in an output folder is
    generated. `make` gets an empty folder, laid out like the repository, and leaves all outputs in it.
    """

    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    make: Callable[[Path], None]

    def input_files(self) -> list[Path]:
        """What the outputs depend on, the generator's own code among it."""
        return files_below(*(ROOT / path for path in self.inputs))

    def output_files(self, root: Path) -> dict[str, bytes]:
        """The outputs below `root` (the repository, or a folder filled by `make`), by name."""
        files = files_below(*(root / path for path in self.outputs))
        return {str(file.relative_to(root)): file.read_bytes() for file in files}


def generators() -> list[Generator]:
    """All generators whose inputs are in the repository, in the order in which they must run."""
    everything = [
        Generator("python-stubs", python_stubs.INPUTS, python_stubs.OUTPUTS, python_stubs.make),
        Generator("etcd-stubs", etcd_stubs.INPUTS, etcd_stubs.OUTPUTS, etcd_stubs.make),
        Generator("rust-stubs", rust_stubs.INPUTS, rust_stubs.OUTPUTS, rust_stubs.make),
        Generator("definitions", definitions.INPUTS, definitions.OUTPUTS, definitions.make),
        Generator(
            "kubernetes-reference", kubernetes_reference.INPUTS, kubernetes_reference.OUTPUTS, kubernetes_reference.make
        ),
        Generator("argo-cd", argo_cd.INPUTS, argo_cd.OUTPUTS, argo_cd.make),
        Generator("chart-schemas", chart_schemas.INPUTS, chart_schemas.OUTPUTS, chart_schemas.make),
        Generator("chart-readmes", chart_readmes.INPUTS, chart_readmes.OUTPUTS, chart_readmes.make),
        Generator("operator-rights", operator_rights.INPUTS, operator_rights.OUTPUTS, operator_rights.make),
        Generator("manifests", manifests.INPUTS, manifests.OUTPUTS, manifests.make),
        Generator("cli-reference", cli_reference.INPUTS, cli_reference.OUTPUTS, cli_reference.make),
        Generator("errors-reference", errors_reference.INPUTS, errors_reference.OUTPUTS, errors_reference.make),
        Generator("compatibility", compatibility.INPUTS, compatibility.OUTPUTS, compatibility.make),
        Generator("figures", figures.INPUTS, figures.OUTPUTS, figures.make),
    ]
    return [generator for generator in everything if all((ROOT / path).exists() for path in generator.inputs)]
