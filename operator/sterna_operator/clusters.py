"""The clusters that there are, each with its etcd: opened when the MessagingCluster is seen, closed when it is gone.

Two MessagingClusters that name the same etcd and the same name in it would overwrite each other's state; the first has
it, the other is told so.
"""

import asyncio
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import structlog
from sterna_etcd import EtcdSettings, Remembered
from sterna_etcd.records import ClaimRecord
from sterna_resources.messaging_cluster import MessagingCluster

from sterna_operator.endpoints import refused, same_place
from sterna_operator.keys import Key
from sterna_operator.leader import Leader
from sterna_operator.mirror import Change
from sterna_operator.secrets import Secret, Secrets
from sterna_operator.store import ClusterStore, FencedError, Stands, UnusableError

log = structlog.get_logger(__name__)

MANAGED_ETCD_PORT = 2379

# Told what changed in a cluster's etcd; the last says whether the operator wrote it itself.
OnChange = Callable[[Key, Sequence[Change], bool], None]
OnState = Callable[[Key], None]


def managed_etcd_url(namespace: str, name: str, *, is_secured: bool) -> str:
    """Where the etcd that the operator runs for a cluster is reached."""
    return f"{'https' if is_secured else 'http'}://{name}-etcd.{namespace}.svc:{MANAGED_ETCD_PORT}"


def managed_etcd_urls(namespace: str, name: str) -> list[str]:
    """All that lead there, in any namespace's spelling and with or without TLS."""
    hosts = [f"{name}-etcd.{namespace}{end}" for end in ("", ".svc", ".svc.cluster.local")]
    return [f"{scheme}://{host}:{MANAGED_ETCD_PORT}" for scheme in ("http", "https") for host in hosts]


class Clusters:
    """One store for each cluster."""

    def __init__(
        self,
        leader: Leader,
        on_change: OnChange,
        on_state: OnState,
        stands: Stands = lambda _: False,
        allowed: Sequence[str] = (),
    ) -> None:
        self.on_write: Callable[[str], None] | None = None
        self.only_looks = False
        """Whether nothing may be written to any etcd, as by who only plans; not to be changed once one is open."""

        self._stands = stands
        self._allowed = allowed
        self._leader = leader
        self._on_change = on_change
        self._on_state = on_state
        self._stores: dict[Key, ClusterStore] = {}
        self._faults: dict[Key, UnusableError] = {}
        self._claiming = asyncio.Lock()
        self._files: Path | None = None

    def get(self, cluster: Key) -> ClusterStore | None:
        """A cluster's store; None: it has none, or not yet."""
        return self._stores.get(cluster)

    def fault(self, cluster: Key) -> tuple[str, str] | None:
        """Why a cluster's etcd cannot be used at present: reason and text."""
        store = self._stores.get(cluster)
        error = (store.fault or store.claim_fault) if store is not None else self._faults.get(cluster)
        if store is None and error is None:
            error = UnusableError("EtcdUnavailable", "the cluster is being set up")
        return None if error is None else (error.reason, str(error))

    def all(self) -> dict[Key, ClusterStore]:
        """All of them."""
        return dict(self._stores)

    async def ensure(
        self,
        cluster: Key,
        resource: MessagingCluster,
        secrets: Secrets,
        status: Mapping[str, Any],
        rival: Key | None = None,
        *,
        claimant: ClaimRecord | None = None,
        takes_over: bool = False,
        is_secured: bool = False,
    ) -> None:
        """Opens the cluster's etcd, or opens it anew when the object says another.

        `rival`: a cluster whose place there is the same, and which has it. `claimant`, `takes_over`: see ClusterStore.
        `is_secured`: whether the etcd that the operator runs for it speaks TLS.

        Raises:
            KubeError: a Secret that is needed cannot be read.
        """
        if others := refused(resource.spec.etcd.endpoints or (), self._allowed):
            await self.drop(cluster)
            self._faults[cluster] = _not_allowed(others, self._allowed)
            return
        if rival is not None:
            await self.drop(cluster)
            self._faults[cluster] = _claimed(resource, rival)
            return
        try:
            settings = await self._settings(cluster, resource, secrets, is_secured=is_secured)
        except ValueError as error:
            await self.drop(cluster)
            self._faults[cluster] = UnusableError("EtcdUnavailable", str(error))
            return
        store = self._stores.get(cluster)
        if store is not None and store.settings == settings and store.claimant == claimant:
            if store.takes_over != takes_over:
                store.takes_over = takes_over
                self._on_state(cluster)
            return
        for other, its in list(self._stores.items()):
            if (
                other != cluster
                and its.layout.cluster == resource.etcd_name
                and same_place(its.settings.endpoints, settings.endpoints)
            ):
                loser, winner = (cluster, other) if resource.spec.etcd.managed is None else (other, cluster)
                await self.drop(loser)
                self._faults[loser] = _claimed(resource, winner)
                if loser == cluster:
                    return
        known = store.identity.known if store is not None else None
        if known is None and status.get("etcdId"):
            known = Remembered(str(status["etcdId"]), int(status.get("etcdRevision") or 0))
        await self.drop(cluster)
        self._stores[cluster] = self._open(cluster, resource.etcd_name, settings, known, claimant)
        self._stores[cluster].takes_over = takes_over

    async def refuse(self, cluster: Key, text: str) -> None:
        """The cluster's manifest cannot be read: it has no etcd."""
        await self.drop(cluster)
        self._faults[cluster] = UnusableError("Invalid", text)
        log.warning("cluster that cannot be read", cluster=str(cluster), error=text)

    def _open(
        self,
        cluster: Key,
        name: str,
        settings: EtcdSettings,
        known: Remembered | None,
        claimant: ClaimRecord | None,
    ) -> ClusterStore:
        store = ClusterStore(
            name,
            settings,
            remembered=known,
            claimant=claimant,
            stands=self._stands,
            on_change=lambda _, changes, is_own: self._on_change(cluster, changes, is_own),
            on_state=lambda _: self._on_state(cluster),
        )
        store.on_write = self.on_write
        store.identity.only_looks = self.only_looks
        store.start()
        return store

    async def drop(self, cluster: Key) -> None:
        """Closes a cluster's etcd."""
        self._faults.pop(cluster, None)
        store = self._stores.pop(cluster, None)
        if store is not None:
            await store.close()

    async def claimed(self, store: ClusterStore) -> None:
        """Makes sure that the store has our epoch, so that it can be written to.

        Raises:
            LostLeadError: another operator leads.
            UnusableError: etcd cannot be had, or nothing may be written to it.
        """
        if self.only_looks:
            raise UnusableError("EtcdUnavailable", f"the etcd of {store.layout.cluster} is only looked at")
        async with self._claiming:
            if store.epoch is None:
                try:
                    await store.claim(self._leader.confirm)
                except FencedError:
                    # Either the Lease is another's by now, or two operators with different Leases want one cluster.
                    await self._leader.confirm()
                    raise

    async def close(self) -> None:
        """Closes everything."""
        for cluster in list(self._stores):
            await self.drop(cluster)
        if self._files is not None:
            await asyncio.to_thread(shutil.rmtree, self._files, True)

    @property
    def ended(self) -> list[str]:
        """The clusters whose watch has ended although nobody closed it: a fault of ours."""
        return [store.layout.cluster for store in self._stores.values() if store.has_ended]

    async def _folder(self, cluster: Key) -> Path:
        if self._files is None:
            self._files = Path(await asyncio.to_thread(tempfile.mkdtemp, prefix="sterna-operator-"))
        return self._files / f"{cluster.namespace}.{cluster.name}"

    async def _settings(
        self, cluster: Key, resource: MessagingCluster, secrets: Secrets, *, is_secured: bool
    ) -> EtcdSettings:
        etcd = resource.spec.etcd
        if etcd.endpoints is None:
            url = managed_etcd_url(cluster.namespace, cluster.name, is_secured=is_secured)
            if not is_secured:
                return EtcdSettings((url,))
            folder = await self._folder(cluster)
            made = await _needed(secrets, cluster.namespace, f"{cluster.name}-etcd-client")
            ours = {name: await _file(folder, name, made, name) for name in ("tls.crt", "tls.key", "ca.crt")}
            return EtcdSettings((url,), ca=ours["ca.crt"], cert=ours["tls.crt"], key=ours["tls.key"])
        settings = EtcdSettings(tuple(etcd.endpoints))
        if etcd.tls is None and etcd.credentials_secret is None:
            return settings
        folder = await self._folder(cluster)
        if etcd.tls is not None:
            ca = await _needed(secrets, cluster.namespace, etcd.tls.ca.name)
            settings = replace(settings, ca=await _file(folder, "ca", ca, etcd.tls.ca.key))
            if etcd.tls.certificate_secret is not None:
                pair = await _needed(secrets, cluster.namespace, etcd.tls.certificate_secret)
                files = [await _file(folder, key, pair, key) for key in ("tls.crt", "tls.key")]
                settings = replace(settings, cert=files[0], key=files[1])
        if etcd.credentials_secret is not None:
            credentials = await _needed(secrets, cluster.namespace, etcd.credentials_secret)
            user = credentials.text("username")
            if not user:
                raise ValueError(f"the Secret {etcd.credentials_secret} has no username")
            password = await _file(folder, "password", credentials, "password")
            settings = replace(settings, user=user.strip(), password_file=password)
        return settings


async def _needed(secrets: Secrets, namespace: str, name: str) -> Secret:
    found = await secrets.get(namespace, name)
    if found is None:
        raise ValueError(f"waits for the Secret {namespace}/{name}")
    return found


async def _file(folder: Path, name: str, secret: Secret, key: str) -> Path:
    """A value of a Secret as a file that only we can read: the client reads it again when it changes."""
    if key not in secret.data:
        raise ValueError(f"a Secret that etcd's access needs has no {key}")
    file = folder / name

    def write() -> None:
        folder.mkdir(mode=0o700, exist_ok=True)
        if file.exists() and file.read_bytes() == secret.data[key]:
            return
        fresh = file.with_suffix(".new")
        fresh.touch(mode=0o600)
        fresh.write_bytes(secret.data[key])
        fresh.replace(file)

    await asyncio.to_thread(write)
    return file


def _claimed(resource: MessagingCluster, other: Key) -> UnusableError:
    return UnusableError("NameClaimed", f"its state in etcd ({resource.etcd_name}) belongs to {other} already")


def _not_allowed(endpoints: Sequence[str], allowed: Sequence[str]) -> UnusableError:
    text = f"etcd.endpoints: {', '.join(endpoints)} is not among those that this operator may speak to"
    return UnusableError("EndpointNotAllowed", f"{text} ({', '.join(allowed)}): nothing is sent there")
