"""The member's connection to etcd: the watch that feeds the view, the store's identity, and the copy on disk.

Failures change nothing: what was known stays known, `faults` says what is wrong, and it goes on when etcd is back.
"""

import asyncio
import contextlib
import json
from collections.abc import Callable, Collection
from pathlib import Path

import structlog
from sterna_etcd import AccessError as EtcdAccessError
from sterna_etcd import Etcd, EtcdError, HomeKey, Layout, StoreIdentity, StoreReplacedError, credentials
from sterna_etcd.identity import RENEW_S, SAVE_EVERY
from sterna_etcd.records import HomeRecord

from sterna_broker.access.errors import AccessError
from sterna_broker.access.watching import Watch
from sterna_broker.cluster.kept import KeptFile, content_of
from sterna_broker.cluster.options import ClusterOptions
from sterna_broker.cluster.view import View
from sterna_broker.surroundings import wall_ms

_log = structlog.get_logger(part="cluster")

# A saved copy may be this much behind.
_SAVE_PAUSE_S = 1.0
_WAITING_LOG_S = 5.0
_OWNER_CHARACTERS_MAX = 256


class StoreLink:
    """See the module. `heard` is called when the view has changed."""

    def __init__(self, options: ClusterOptions, data: Path) -> None:
        self.layout = Layout(options.cluster)
        self.etcd = Etcd(options.etcd)
        self.view = View(self.layout)
        self.identity = StoreIdentity(self.layout, member=("broker", options.name), owner=options.owner)
        self.heard: Callable[[], None] = lambda: None
        self.doubtful: Callable[[], Collection[HomeKey]] = tuple
        """Homes of which nobody knows whether they are still ours: who starts from the kept copy must not open them."""

        self.homes_before: dict[HomeKey, HomeRecord] = {}
        """Where everything lived, as far as it was kept, when this etcd is taken as it is."""

        self._options = options
        self._file = KeptFile(data, self.layout)
        self._listed = asyncio.Event()
        self._dirty = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._watch = self.etcd.watch(self.layout.prefix, until=self.layout.statuses, verify=self._verify)
        self._saving = asyncio.Lock()
        file = options.owner_file
        self._owner = Watch((file,), self._load_owner) if file is not None else None

    async def start(self) -> None:
        """Until there is a configuration: etcd's, or after a moment the one that was kept.

        Raises:
            AccessError: a file that etcd and we know each other by cannot be used.
            KeptError: the kept copy cannot be used.
        """
        try:
            await asyncio.to_thread(credentials.check, self._options.etcd)
        except EtcdAccessError as error:
            raise AccessError(str(error)) from error
        kept = await asyncio.to_thread(self._file.load)
        if kept is not None and self._options.accept_store:
            self.homes_before = {key: stored.record for key, stored in kept.view.homes.items()}
            # Those that have not come yet are where they were, and serve.
            self.view.addresses = dict(kept.view.addresses)
        elif kept is not None:
            self.view = kept.view
            self.identity.known = kept.identity
        self._watch.seed(self.view.keys(), self.view.revision)
        self._watch.on_fault = self._note_fault
        if self._owner is not None:
            await self._owner.look(anyway=True)
            self._owner.start()
        self._tasks.append(asyncio.create_task(self._follow(), name="follow-etcd"))
        self._tasks.append(asyncio.create_task(self._keep(), name="keep-configuration"))
        self._tasks.append(asyncio.create_task(self._bear_witness(), name="bear-witness"))
        wait_s = self._options.start_wait_ms / 1000 if self._has_kept else None
        await self._wait_listed(wait_s)

    @property
    def _has_kept(self) -> bool:
        return self.identity.known is not None

    async def stop(self) -> None:
        """Ends the watch and saves what is known."""
        if self._owner is not None:
            await self._owner.stop()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._save()
        await self.etcd.close()

    @property
    def fault(self) -> EtcdError | None:
        """What is wrong with etcd now; None: all is well."""
        return self._watch.fault

    @property
    def faults(self) -> list[str]:
        """What people should know: how etcd is, and which of its values cannot be read."""
        found = list(self.view.faults.values())[:10]
        if self.fault is not None:
            kind = "is not the one that was known" if isinstance(self.fault, StoreReplacedError) else "cannot be used"
            found.insert(0, f"etcd {kind} ({self.fault}); the last configuration is kept, nothing is written")
        return found

    async def _wait_listed(self, wait_s: float | None) -> None:
        loop = asyncio.get_running_loop()
        deadline = None if wait_s is None else loop.time() + wait_s
        while not self._listed.is_set():
            left_s = _WAITING_LOG_S if deadline is None else deadline - loop.time()
            if left_s <= 0:
                _log.warning("starting_from_kept_configuration", error=str(self.fault), revision=self.view.revision)
                return
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(left_s, _WAITING_LOG_S)):
                    await self._listed.wait()
            if not self._listed.is_set() and deadline is None:
                _log.warning("waiting_for_etcd", error=str(self.fault), kept="none")

    async def _load_owner(self) -> bool:
        """Whose this broker is. An object that was made anew under its name may have another uid, and keep the pods."""
        file = self._options.owner_file
        assert file is not None  # otherwise nothing is watched
        try:
            uid = (await asyncio.to_thread(file.read_text, "utf-8"))[:_OWNER_CHARACTERS_MAX].strip()
        except (OSError, UnicodeDecodeError) as error:
            _log.warning("owner_not_read", error=str(error))
            return False
        if uid != self.identity.owner:
            _log.info("owner", uid=uid, before=self.identity.owner)
            self.identity.owner = uid
            self._watch.doubt()
        return True

    async def _verify(self) -> None:
        await self.identity.verify(self.etcd, wall_ms())

    async def _is_ours(self) -> bool:
        """Whether etcd is still the one we know, so that what it says is gone may be believed to be."""
        try:
            await self._verify()
        except EtcdError as error:
            _log.warning("etcd_in_doubt", error=str(error))
            return False
        return True

    def _note_fault(self, fault: EtcdError | None) -> None:
        if fault is None:
            _log.info("etcd_followed", revision=self.view.revision)
        else:
            _log.warning("etcd_lost", error=str(fault))
        self.heard()

    async def _follow(self) -> None:
        async with contextlib.aclosing(self._watch.batches()) as batches:
            async for batch in batches:
                if any(event.current is None for event in batch.events) and not await self._is_ours():
                    # Nothing of this batch is believed: it may be the end of all the cluster's keys. The watch
                    # verifies, and lists everything again, before it tells more.
                    _log.error("deletions_not_believed", keys=len(batch.events))
                    self._watch.seed(self.view.keys(), self.view.revision)
                    self._watch.doubt()
                    continue
                self.view.take(batch)
                self.identity.note(batch.revision)
                self._dirty.set()
                self._listed.set()
                self.heard()

    async def _keep(self) -> None:
        while True:
            await self._dirty.wait()
            await self._save()
            await asyncio.sleep(_SAVE_PAUSE_S)

    async def _bear_witness(self) -> None:
        """Leaves tokens in etcd, by which a copy of it that was restored is known."""
        left = 0
        while True:
            if self._listed.is_set() and self.fault is None:
                before = self.identity.known
                try:
                    await self.identity.renew(self.etcd, wall_ms())
                except StoreReplacedError as error:
                    _log.error("etcd_in_doubt", error=str(error))
                    self._watch.doubt()
                except EtcdError as error:
                    _log.debug("token_not_left", error=str(error))
                known = self.identity.known
                if known is not None and (before is None or known.witness != before.witness):
                    left += 1
                    if left % SAVE_EVERY == 1:
                        self._dirty.set()
            await asyncio.sleep(RENEW_S)

    def dirty(self) -> None:
        """The view has changed by a transaction of our own."""
        self._dirty.set()

    async def _save(self) -> None:
        self._dirty.clear()
        if self.identity.known is None:
            return
        view, known = self.view.copy(), self.identity.known
        for key in self.doubtful():
            view.homes.pop(key, None)
        async with self._saving:
            try:
                await asyncio.to_thread(lambda: self._file.save(json.dumps(content_of(view, known))))
            except OSError as error:
                _log.warning("configuration_not_kept", error=str(error))
