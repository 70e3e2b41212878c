"""JSON that is signed: canonical, so that the same values are the same bytes whoever writes them.

Keys are sorted, there are no spaces, the text is UTF-8, and numbers are whole. `key` and `signature` stand in the
object itself; what is signed is the object without `signature`.
"""

import json
from typing import Any

from sterna_audit.snapshots.findings import Finding
from sterna_audit.snapshots.keys import Signer, Verifier

Object = dict[str, Any]


class BadJsonError(ValueError):
    """Bytes are no object of canonical JSON."""


def encoded(values: Object) -> bytes:
    """The canonical bytes."""
    return json.dumps(values, ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":")).encode()


def signed(values: Object, signer: Signer | None) -> bytes:
    """The canonical bytes with the signature, or with none where there is no signer."""
    whole = {**values, "key": signer.key_id if signer is not None else None}
    signature = signer.sign(encoded(whole)) if signer is not None else None
    return encoded({**whole, "signature": signature})


def decoded(data: bytes) -> Object:
    """The object.

    Raises:
        BadJsonError: they are none, or not as `encoded` writes it.
    """
    try:
        found = json.loads(data.decode(), parse_float=_no_number, parse_constant=_no_number)
    except RecursionError as error:
        raise BadJsonError("it is nested too deeply") from error
    except ValueError as error:
        raise BadJsonError(f"it is no JSON: {str(error)[:200]}") from error
    if not isinstance(found, dict):
        raise BadJsonError("it is no JSON object")
    try:
        again = encoded(found)
    except (RecursionError, ValueError) as error:
        raise BadJsonError("it is not in canonical form") from error
    if again != data:
        raise BadJsonError("it is not in canonical form (sorted keys, no spaces): another program wrote it")
    return found


def _no_number(text: str) -> Any:
    raise ValueError(f"{text[:20]} is no whole number")


def signature_findings(file: str, values: Object, verifier: Verifier | None) -> list[Finding]:
    """What is wrong with an object's signature. Without a verifier whoever reads has said that it need have none."""
    if verifier is None:
        return []
    key, signature = values.get("key"), values.get("signature")
    if key is None and signature is None:
        return [Finding(file, "unsigned", "it has no signature, so that anybody may have written it")]
    if not isinstance(key, str) or not isinstance(signature, str):
        return [Finding(file, "wrong-signature", "key and signature are no texts")]
    if not verifier.knows(key):
        return [Finding(file, "unknown-key", f"it was signed with the key {key[:64]}, which is not among those given")]
    unsigned = {name: value for name, value in values.items() if name != "signature"}
    if not verifier.is_signed(encoded(unsigned), key, signature):
        return [Finding(file, "wrong-signature", "the signature does not fit: it was changed after it was signed")]
    return []
