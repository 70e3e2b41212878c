"""One broker for all tests of a process, and names that no other test uses.

To run the suite against another implementation, give the fixtures `provider`, `checking` and `own_provider` another
`provider.Provider`; nothing else here knows ours, which tests/unit/test_conformance_driver.py sees to.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Iterator

import grpc.aio  # noqa: F401 - loaded before any loop runs, since the tests bound how long a callback may take
import pytest
import sterna.connections  # noqa: F401 - likewise
from sterna_resources.passwords import Cost, hash_password

from tests.conformance.provider import Destination, Provider, Queue, Session, Topic
from tests.conformance.sterna_provider import MANIFESTS, SternaProvider
from tests.running import RunningBroker

_numbers = itertools.count(1)

#: Of the broker that checks users: names with passwords.
USERS = {"admin": "0", "ada": "1", "bob": "2"}


@pytest.fixture(scope="session")
def conformance_broker(tier_broker: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    """A real broker, for all tests of this process."""
    with RunningBroker(tmp_path_factory.mktemp("conformance"), MANIFESTS) as running:
        yield running


@pytest.fixture
async def provider(conformance_broker: RunningBroker) -> AsyncIterator[Provider]:
    """What the tests are run against. All that a test has opened ends with it."""
    provider = SternaProvider(conformance_broker)
    yield provider
    await provider.end()


@pytest.fixture(scope="session")
def broker_with_users(tier_broker: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    """Another one, which lets in whom it knows alone: `USERS`."""
    folder = tmp_path_factory.mktemp("users")
    users = folder / "users.yaml"
    cheap = Cost(memory_kib=64, passes=1, lanes=1)
    users.write_text("".join(f"{name}:\n  - {hash_password(word, cheap)}\n" for name, word in USERS.items()))
    with RunningBroker(folder / "broker", MANIFESTS, users=str(users)) as running:
        yield running


@pytest.fixture
async def checking(broker_with_users: RunningBroker) -> AsyncIterator[Provider]:
    """As `provider`, where users are checked."""
    provider = SternaProvider(broker_with_users, "admin", USERS["admin"])
    yield provider
    await provider.end()


@pytest.fixture(scope="session")
def broker_of_the_oracle(tier_broker: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    """One more, which only the oracle's tests kill."""
    with RunningBroker(tmp_path_factory.mktemp("oracle"), MANIFESTS) as running:
        yield running


@pytest.fixture
def own_provider(broker_of_the_oracle: RunningBroker) -> Iterator[tuple[asyncio.Runner, Provider]]:
    """As `provider`, for tests that run their own loop: hypothesis calls no coroutines."""
    with asyncio.Runner() as runner:
        provider = SternaProvider(broker_of_the_oracle)
        yield runner, provider
        runner.run(provider.end())


@pytest.fixture
async def session(provider: Provider) -> Session:
    """A session in AUTO mode, on a connection of its own."""
    return await (await provider.connect()).session()


@pytest.fixture
def word() -> str:
    """A word that no other test uses in a name."""
    return f"t{next(_numbers)}"


@pytest.fixture
def queue(word: str) -> Queue:
    """A queue that clients may create."""
    return Queue(f"any.{word}")


@pytest.fixture
def topic(word: str) -> Topic:
    """A topic that clients may create."""
    return Topic(f"any.{word}")


@pytest.fixture(params=[Queue, Topic], ids=["queue", "topic"])
def kind(request: pytest.FixtureRequest) -> type[Destination]:
    """Both kinds, one after the other."""
    found: type[Destination] = request.param
    return found
