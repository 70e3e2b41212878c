"""When a lease is renewed, and what an endpoint may take for it; against a client that only notes what it is asked."""

import time

from sterna_etcd.errors import UnavailableError
from sterna_etcd.leases import Lease

from tests.waiting import eventually


class Renewals:
    """Answers renewals after `failures` that fail."""

    def __init__(self, lives_s: int, failures: int = 0) -> None:
        self.lives_s = lives_s
        self.failures = failures
        self.asked: list[tuple[float, float]] = []

    async def keep_alive(self, lease: int, attempt_s: float) -> int:
        """Notes when it was asked and what an endpoint would have had."""
        self.asked.append((time.monotonic(), attempt_s))
        if len(self.asked) <= self.failures:
            raise UnavailableError("nobody answers")
        return self.lives_s

    async def revoke(self, lease: int) -> None:
        """Nothing has to end."""


async def test_a_grant_that_took_long_is_renewed_at_once() -> None:
    keeper = Renewals(lives_s=60)
    lease = Lease(keeper, 1, ttl_s=60, sent_s=time.monotonic() - 50)
    await eventually(lambda: bool(keeper.asked), timeout_s=5, what="the renewal")
    # Two more endpoints can be asked in what is left.
    assert keeper.asked[0][1] <= 10 / 3
    assert lease.is_alive
    await lease.stop()
    assert len(keeper.asked) == 1


async def test_a_failed_renewal_is_tried_again_while_the_lease_lives() -> None:
    keeper = Renewals(lives_s=60, failures=2)
    lease = Lease(keeper, 1, ttl_s=60, sent_s=time.monotonic() - 50)
    await eventually(lambda: len(keeper.asked) == 3, timeout_s=5, what="the third renewal")
    assert not lease.lost.is_set()
    await lease.stop()


async def test_a_lease_that_nobody_renews_is_lost() -> None:
    keeper = Renewals(lives_s=60, failures=1_000)
    lease = Lease(keeper, 1, ttl_s=2, sent_s=time.monotonic() - 1)
    await eventually(lease.lost.is_set, timeout_s=5, what="the loss")
    assert not lease.is_alive


class Defect(Renewals):
    """Fails in a way that nobody has thought of."""

    async def keep_alive(self, lease: int, attempt_s: float) -> int:
        raise RuntimeError("a defect")


async def test_a_lease_whose_renewing_has_died_is_lost() -> None:
    lease = Lease(Defect(lives_s=60), 1, ttl_s=60, sent_s=time.monotonic() - 50)
    await eventually(lease.lost.is_set, timeout_s=5, what="the loss")
    await lease.stop()


async def test_a_lease_that_is_stopped_is_not_lost() -> None:
    lease = Lease(Renewals(lives_s=60), 1, ttl_s=60, sent_s=time.monotonic())
    await lease.stop()
    assert not lease.lost.is_set()
