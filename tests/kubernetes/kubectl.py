"""kubectl and helm, as tests use them: on one cluster, in one namespace. Whatever KUBECONFIG says is the cluster."""

import json
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tests.kubernetes import objects
from tests.waiting import eventually_blocking

ROOT = Path(__file__).parent.parent.parent
API_VERSION = "sterna.dev/v1alpha1"
# Each check asks the API server, which has other things to do as well.
_PAUSE_S = 0.1


class CommandError(AssertionError):
    """A command failed; the text has what it said."""


def run(*command: str, stdin: str | None = None, timeout_s: float = 120.0) -> str:
    """Runs a program; what it wrote to stdout.

    Raises:
        CommandError: it failed.
    """
    outcome = subprocess.run(
        command,
        cwd=ROOT,
        input=stdin,
        stdin=subprocess.DEVNULL if stdin is None else None,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    if outcome.returncode != 0:
        raise CommandError(f"{' '.join(command)}: {outcome.returncode}\n{outcome.stdout}{outcome.stderr}")
    return outcome.stdout


def helm(*arguments: str, timeout_s: float = 300.0) -> str:
    """Runs helm. Errors as run."""
    return run("helm", *arguments, timeout_s=timeout_s)


class Namespace:
    """One namespace."""

    def __init__(self, name: str) -> None:
        self.name = name

    def kubectl(self, *arguments: str, stdin: str | None = None, timeout_s: float = 120.0) -> str:
        """Runs kubectl in the namespace. Errors as run."""
        return run("kubectl", "--namespace", self.name, *arguments, stdin=stdin, timeout_s=timeout_s)

    def apply(self, kind: str, name: str, spec: Mapping[str, Any], **metadata: Any) -> None:
        """Applies one of our objects."""
        manifest = {
            "apiVersion": API_VERSION,
            "kind": kind,
            "metadata": {"name": name, **metadata},
            "spec": spec,
        }
        self.kubectl("apply", "-f", "-", stdin=json.dumps(manifest))

    def patch(self, kind: str, name: str, patch: Mapping[str, Any]) -> None:
        """Merge patch."""
        self.kubectl("patch", kind, name, "--type=merge", "-p", json.dumps(patch))

    def get(self, kind: str, name: str) -> dict[str, Any] | None:
        """One object; None: there is none."""
        return objects.read(kind, self.name, name)

    def all(self, kind: str, selector: str = "") -> list[dict[str, Any]]:
        """All objects of a kind."""
        return objects.read_all(kind, self.name, selector)

    def delete(self, kind: str, name: str, *arguments: str, timeout_s: float = 60.0) -> None:
        """Deletes an object and waits until it is gone, unless the arguments say otherwise."""
        self.kubectl("delete", kind, name, *arguments, timeout_s=timeout_s)

    def condition(self, kind: str, name: str, condition: str = "Ready") -> dict[str, Any]:
        """A condition that stands for the object's present generation; empty: there is none."""
        found = self.get(kind, name)
        if found is None:
            return {}
        status = found.get("status") or {}
        if status.get("observedGeneration") != found["metadata"]["generation"]:
            return {}
        return next((one for one in status.get("conditions") or () if one["type"] == condition), {})

    def ready(self, kind: str, name: str, timeout_s: float = 120.0) -> dict[str, Any]:
        """Waits until an object is Ready; the object."""
        self.wait(
            lambda: self.condition(kind, name).get("status") == "True",
            timeout_s,
            f"{kind} {name} Ready",
            lambda: json.dumps((self.get(kind, name) or {}).get("status"), indent=1),
        )
        found = self.get(kind, name)
        assert found is not None
        return found

    def wait(
        self,
        check: Callable[[], Any],
        timeout_s: float,
        what: str,
        explain: Callable[[], str] = lambda: "",
    ) -> Any:
        """The first true value of `check`; what `explain` says is added when it does not come."""
        try:
            return eventually_blocking(check, timeout_s=timeout_s, what=what, pause_s=_PAUSE_S)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{explain()}\n{self.circumstances()}") from error

    def circumstances(self) -> str:
        """What may explain a failure: the pods, the operator's last words, and those of what was started anew."""
        said = [self.kubectl("get", "pods", "-o", "wide")]
        for pod in self.all("pod"):
            name = pod["metadata"]["name"]
            for container in pod["status"].get("containerStatuses") or ():
                runs: list[tuple[str, ...]] = [()] if container["name"] == "operator" else []
                runs += [("--previous",)] if container["restartCount"] else []
                for run in runs:
                    command = ["kubectl", "-n", self.name, "logs", name, "--tail=25", *run]
                    # A pod may go while it is asked.
                    log = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
                    said.append(f"--- {' '.join(command)}, last ended: {container.get('lastState')}\n{log.stdout}")
        return "\n".join(said)

    def broker_pods(self, cluster: str) -> dict[str, dict[str, Any]]:
        """The brokers' pods by name, those that are going left out."""
        selector = f"app.kubernetes.io/instance={cluster},app.kubernetes.io/component=broker"
        return {
            pod["metadata"]["name"]: pod
            for pod in self.all("pod", selector)
            if "deletionTimestamp" not in pod["metadata"]
        }

    def python(self, pod: str, code: str, timeout_s: float = 60.0) -> str:
        """Runs Python in a broker's pod, where the SDK is."""
        return self.kubectl("exec", pod, "--", "/opt/sterna/bin/python", "-c", code, timeout_s=timeout_s)
