"""Having brokers emptied, as the operator does it, and what they say of it."""

from sterna_etcd.records import BrokerStatus, Draining, DrainRecord

from tests.cluster.conftest import LAYOUT, Operator, waited


async def drain(operator: Operator, broker: str, *, force: bool = False, closes_only: bool = False) -> None:
    """Has a broker emptied, or only closed."""
    await operator.etcd.put(LAYOUT.drain(broker), DrainRecord(force=force, closes_only=closes_only).encode())


async def status(operator: Operator, broker: str) -> BrokerStatus | None:
    """What a broker says of itself."""
    key = LAYOUT.broker_status(broker)
    found = (await operator.etcd.get(key)).found
    return BrokerStatus.decode(key, found.value) if found else None


async def draining(operator: Operator, broker: str) -> Draining | None:
    """What a broker says it still has."""
    said = await status(operator, broker)
    return said.draining if said else None


async def until_left(operator: Operator, broker: str, destinations: int, messages: int) -> None:
    """Until a broker that is being emptied has so much left."""

    async def look() -> bool:
        left = await draining(operator, broker)
        return left is not None and (left.destinations, left.messages) == (destinations, messages)

    await waited(look, 20, f"{destinations} destinations with {messages} messages to be left")
