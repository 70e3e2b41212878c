"""gRPC channels, with TLS or without; and words for those that cannot be had.

gRPC says of a failed handshake little that helps, and not the same in each version. So when an address cannot be
reached, it is called once more with Python's own `ssl`, which tells precisely what is wrong. That costs a connection
where there is nothing to lose any more.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import ssl
from collections.abc import Callable
from typing import Any, Final

from sterna import errors
from sterna.tls import LoadedTls, Tls, is_file

_PROBE_TIMEOUT_S: Final = 2.0
#: A broker that wants a certificate says so after the handshake, from the client's point of view.
_LAST_WORD_TIMEOUT_S: Final = 0.5

# Trailing metadata that holds the contract's Error, where the broker could say more than a status.
_ERROR_KEY: Final = "sterna-error-bin"

_EXPIRED, _NOT_YET = 10, 9
_WRONG_NAME: Final = (62, 64)
_SELF_MADE: Final = (18, 19, 20, 21)


def _of_grpc(address: str, credentials: Any, options: list[tuple[str, Any]]) -> Any:
    import grpc

    if credentials is None:
        return grpc.aio.insecure_channel(address, options=options)
    return grpc.aio.secure_channel(address, credentials, options=options)


#: Makes a channel of an address, credentials (None: without TLS) and options; a simulation has others.
make_channel: Callable[[str, Any, list[tuple[str, Any]]], Any] = _of_grpc


async def open_channel(address: str, tls: Tls | None, options: list[tuple[str, Any]]) -> Any:
    """A channel to an address, and to nothing between; dials when it is used.

    Raises:
        TlsError: a file of `tls` cannot be used.
    """
    # A proxy of the environment's is for the web, and would read passwords.
    options = [*options, ("grpc.enable_http_proxy", 0)]
    if tls is None:
        return make_channel(address, None, options)
    loaded = await asyncio.to_thread(tls.load)
    if loaded.server_name:
        options = [*options, ("grpc.ssl_target_name_override", loaded.server_name)]
    return make_channel(address, loaded.credentials(), options)


#: Channels that are being closed, and that perhaps nobody waits for.
_closing: dict[asyncio.Future[None], None] = {}


def closing(channel: Any) -> asyncio.Future[None]:
    """Closes a channel, whether whoever asks waits for that or is cancelled; done when it is."""
    told: asyncio.Future[None] = asyncio.ensure_future(channel.close())
    _closing[told] = None
    told.add_done_callback(lambda done: _closing.pop(done, None))
    return told


async def dialled(address: str, tls: Tls | None, options: list[tuple[str, Any]], timeout: float) -> Any:
    """A channel at whose other end a broker answers.

    Raises:
        UnreachableError: nobody does, within the timeout; TlsError where TLS is the reason.
    """
    channel = await open_channel(address, tls, options)
    try:
        is_ready = await _becomes_ready(channel, timeout)
    except BaseException:
        closing(channel)  # whoever asks is cancelled
        raise
    if is_ready:
        return channel
    await asyncio.shield(closing(channel))
    raise await unreachable(address, tls, f"no broker answered at {address}")


async def _becomes_ready(channel: Any, timeout: float) -> bool:
    """Whether somebody answers; a refused connection tells at once, without waiting for the timeout."""
    import grpc

    async def settled() -> bool:
        state = channel.get_state(try_to_connect=True)
        while state not in (grpc.ChannelConnectivity.READY, grpc.ChannelConnectivity.TRANSIENT_FAILURE):
            await channel.wait_for_state_change(state)
            state = channel.get_state(try_to_connect=True)
        return state is grpc.ChannelConnectivity.READY

    try:
        async with asyncio.timeout(timeout):
            return await settled()
    except TimeoutError:
        return False


def refusal(error: Any, address: str) -> errors.SternaError:
    """The SDK's error for a failed call: the broker's own, where it sent one."""
    told = told_by(error.trailing_metadata())
    return told or errors.from_status(error.code().name, error.details() or "", address=address)


def told_by(trailing_metadata: Any) -> errors.SternaError | None:
    """What a broker says about the end of a call, beside its status; None: nothing, or nothing that can be read."""
    from google.protobuf.message import DecodeError

    from sterna._proto.sterna.v1 import messaging_pb2

    for key, value in trailing_metadata or ():
        if key == _ERROR_KEY and isinstance(value, bytes):
            with contextlib.suppress(DecodeError):
                return errors.from_proto(messaging_pb2.Error.FromString(value))
    return None


async def unreachable(address: str, tls: Tls | None, cause: str) -> errors.UnreachableError:
    """The error for an address that cannot be reached, with what is wrong with TLS where it is that."""
    try:
        async with asyncio.timeout(_PROBE_TIMEOUT_S):
            found = await _probe(address, tls)
    except (OSError, TimeoutError, errors.TlsError):
        found = None
    if found is not None:
        why, remedy = found
        return errors.TlsError(f"{address}: {why}", subject=address, remedy=remedy, retryable=True)
    return errors.UnreachableError(cause, subject=address, retryable=True)


async def _probe(address: str, tls: Tls | None) -> tuple[str, str] | None:
    """What is wrong, and what to do; None: nothing that has to do with TLS."""
    host, port = _split(address)
    loaded = await asyncio.to_thread(tls.load) if tls is not None else None
    context = await asyncio.to_thread(_context, tls, loaded)
    name = (loaded.server_name if loaded else "") or host
    writer: asyncio.StreamWriter | None = None
    try:
        reader, writer = await asyncio.open_connection(host, port, ssl=context, server_hostname=name)
        if loaded is None:
            return "the broker there speaks TLS, and was called without", "write sternas:// in place of sterna://"
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LAST_WORD_TIMEOUT_S):
                if not await reader.read(1):
                    # A server of HTTP/2 speaks first. One that leaves instead did not like what it was shown.
                    return _of_client(loaded)
    except ssl.SSLCertVerificationError as error:
        return _of_verification(error, name)
    except ssl.SSLError as error:
        return _of_handshake(error, loaded)
    finally:
        if writer is not None:
            writer.transport.abort()
    return None


def _context(tls: Tls | None, loaded: LoadedTls | None) -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=loaded.ca.decode("ascii", "replace") if loaded and loaded.ca else None)
    context.set_alpn_protocols(["h2"])
    if loaded is None:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    # Python takes a certificate of the client from files alone; one that is in memory stays away.
    if tls is not None and is_file(tls.certificate) and is_file(tls.key):
        context.load_cert_chain(str(tls.certificate), str(tls.key))
    return context


def _of_verification(error: ssl.SSLCertVerificationError, name: str) -> tuple[str, str]:
    code = error.verify_code
    if code == _EXPIRED:
        return "the broker's certificate has expired", "renew it; the broker reads it again by itself"
    if code == _NOT_YET:
        return "the broker's certificate is not valid yet", "compare the clocks of both sides"
    if code in _WRONG_NAME:
        return (
            f"the broker's certificate is not for the name {name}",
            "use a name that it has, or say which one with server_name",
        )
    if code in _SELF_MADE:
        return (
            "the broker's certificate is of an authority that is not trusted",
            "name the authority's certificate with ca",
        )
    return f"the broker's certificate is refused: {error.verify_message}", "compare it with ca and server_name"


def _of_handshake(error: ssl.SSLError, loaded: LoadedTls | None) -> tuple[str, str] | None:
    reason = error.reason or ""
    refusals = ("CERTIFICATE_REQUIRED", "HANDSHAKE_FAILURE", "ALERT_UNKNOWN_CA", "ALERT_BAD_CERTIFICATE")
    if any(one in reason for one in (*refusals, "ALERT_CERTIFICATE_EXPIRED", "ALERT_DECRYPT_ERROR")):
        return _of_client(loaded)
    if loaded is None:
        return None
    if reason in ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "UNKNOWN_PROTOCOL", "HTTP_REQUEST", ""):
        return "nobody speaks TLS there", "write sterna:// if the broker has no TLS, or correct the port"
    return f"TLS failed: {reason.replace('_', ' ').lower()}", "compare the TLS settings of both sides"


def _of_client(loaded: LoadedTls | None) -> tuple[str, str]:
    if loaded is not None and loaded.certificate is not None:
        return "the broker refuses the client's certificate", "use one of the authority that the broker trusts"
    return "the broker wants a certificate of the client", "give one with certificate and key"


def _split(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host.removeprefix("[").removesuffix("]"), int(port)


def is_loopback(address: str) -> bool:
    """Whether an address is this machine."""
    host, _ = _split(address)
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
