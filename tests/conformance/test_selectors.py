"""Message selectors, row by row (EMS-CLI-A10 to A19, B31).

Each case is a selector and whether it matches one message, which has the header and the properties below. It is put to
the provider as a browser of a queue; that consumers, subscriptions and bridges filter by the same is shown at the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from sterna import Byte, Char, Double, Float, Long, Short

from tests.conformance.provider import Provider, Queue, Refusal, Session, Topic, refused
from tests.conformance.steps import bodies, send_all, until_end

PROPERTIES: dict[str, Any] = {
    "byte": Byte(7),
    "short": Short(-300),
    "int": 57,
    "long": Long(2**40),
    "float": Float(1.5),
    "double": Double(-95.7),
    "zero": 0,
    "yes": True,
    "no": False,
    "name": "Smith",
    "empty": "",
    "quote": "it's",
    "percent": "100%",
    "under": "a_b",
    "back": "a\\b",
    "lines": "a\nb",
    "uni": "Grüße \U0001f426",
    "digits": "57",
    "char": Char("x"),
    "$dollar": 1,
    "_under": 2,
    "a1": 3,
    "ümlaut": 4,
    "Name": "other case",
    "nullValue": None,
    "n" * 300: 5,
}
HEADER: dict[str, Any] = {"priority": 6, "correlation_id": "C-1", "type": "order", "delivery_mode": "NON_PERSISTENT"}

TRUE = {
    "EMS-CLI-A10": [
        "",
        "int = 57 AND name = 'Smith'",
        "JMSPriority = 6",
        "JMSCorrelationID = 'C-1'",
        "JMSType = 'order'",
        "JMSDeliveryMode = 'NON_PERSISTENT'",
        "JMSTimestamp > 0",
        "JMSMessageID LIKE 'ID:%'",
        "JMSXDeliveryCount = 1 OR JMSXDeliveryCount IS NULL",
    ],
    "EMS-CLI-A11": [
        "$dollar = 1",
        "_under = 2",
        "a1 = 3",
        "ümlaut = 4",
        f"{'n' * 300} = 5",
        "name = 'Smith'",
        "Name = 'other case'",
        "NAME IS NULL",
        "nullValue IS NULL",
    ],
    "EMS-CLI-A12": [
        "quote = 'it''s'",
        "uni = 'Grüße \U0001f426'",
        "empty = ''",
        "int = 57",
        "int = +57",
        "double < -95",
        "zero > -957",
        "byte = 7.",
        "double = -95.7",
        "zero > -57.9E2",
        "zero < 7E3",
        "byte = 7E0",
        "byte = 70e-1",
        "float = 1.5",
        "long = 1099511627776",
        "zero < 9223372036854775807",
        "zero > -9223372036854775808",
        "yes = TRUE",
        "yes = true",
        "no = FaLsE",
        "float = .15E1",
    ],
    "EMS-CLI-A13": [
        "int = 57 OR absent = 1",
        "absent = 1 OR int = 57",
        "NOT (absent = 1 AND int = 0)",
        "(int = 0 OR int = 57) AND yes = TRUE",
        "int + 1 = 58",
        "int * 2 = 114",
        "int / 2 = 28",
        "int / 2.0 = 28.5",
        "10 - 4 - 3 = 3",
        "100 / 10 / 5 = 2",
        "byte + short = -293",
        "int + float = 58.5",
        "long + 1 > long",
        "yes",
        "NOT no",
    ],
    "EMS-CLI-A14": [
        "NOT no = TRUE AND yes = TRUE",
        "no = TRUE AND no = TRUE OR yes = TRUE",
        "yes = TRUE OR no = TRUE AND no = TRUE",
        "not no = true and yes = true Or no = true",
        "int > 56",
        "int >= 57",
        "int < 58",
        "int <= 57",
        "int <> 56",
        "long > 1.5",
        "int = 57.0",
        "float = 1.5",
        "byte < float + 6",
        "name = 'Smith'",
        "name <> 'smith'",
        "yes <> no",
        "yes = TRUE",
        "- int = -57",
        "-int + 57 = 0",
        "2 + 3 * 4 = 14",
        "(2 + 3) * 4 = 20",
        "10 - 4 / 2 = 8",
        "- - int = 57",
        "2 * -3 = -6",
        "int = byte * 8 + 1",
        "NOT (name = 57)",
        "NOT (name <> 57)",
        "NOT (int = TRUE)",
        "NOT (yes = 'TRUE')",
        "NOT (digits > 5)",
        "name = 57 OR int = 57",
        "NOT (name = 57 AND absent = 1)",
        "digits = '57'",
    ],
    "EMS-CLI-A15": [
        "int BETWEEN 57 AND 60",
        "int BETWEEN 50 AND 57",
        "int between 57 and 57",
        "int NOT BETWEEN 58 AND 60",
        "int NOT BETWEEN 60 AND 50",
        "double BETWEEN -100 AND 0",
        "int BETWEEN byte AND long",
        "int + 1 BETWEEN 2 * 29 AND 60 - 1",
        "int BETWEEN 56.5 AND 57.5 AND yes = TRUE",
        "NOT int BETWEEN 1 AND 2",
    ],
    "EMS-CLI-A16": [
        "name IN ('Smith', 'Jones')",
        "name in ('Smith')",
        "name NOT IN ('Jones')",
        "empty IN ('')",
        "quote IN ('it''s')",
        "name IN ('smith', 'Smith', 'Smith')",
        "JMSType IN ('order')",
    ],
    "EMS-CLI-A17": [
        "name LIKE 'Smith'",
        "name LIKE 'S%'",
        "name LIKE '%h'",
        "name LIKE '%mit%'",
        "name LIKE '%'",
        "name LIKE 'S_ith'",
        "name LIKE '_____'",
        "name LIKE '%_'",
        "name NOT LIKE 's%'",
        "name NOT LIKE 'Smit'",
        "empty LIKE ''",
        "empty LIKE '%'",
        "empty NOT LIKE '_'",
        "percent LIKE '100!%' ESCAPE '!'",
        "under LIKE 'a\\_b' ESCAPE '\\'",
        "percent LIKE '%!%' ESCAPE '!'",
        "back LIKE 'a\\b'",
        "lines LIKE 'a_b'",
        "lines LIKE 'a%'",
        "uni LIKE '%_'",
        "uni LIKE 'Gr__e %'",
    ],
    "EMS-CLI-A18": [
        "absent IS NULL",
        "name IS NOT NULL",
        "empty IS NOT NULL",
        "no is not null",
        "zero IS NOT NULL",
        "JMSType IS NOT NULL",
        "JMSXGroupID IS NULL",
        "NOT name IS NULL",
    ],
    "EMS-CLI-A19": [
        "  int   =\t57 ",
        "int\n=\n57",
        "int\r\n=57\fAND\tyes\n",
        "int=57 AND(yes=TRUE)",
        "name='Smith'AND int=57",
    ],
}

FALSE = {
    "EMS-CLI-A10": ["int = 58", "absent = 1", "NOT absent = 1", "JMSPriority > 6", "JMSDeliveryMode = 'PERSISTENT'"],
    "EMS-CLI-A11": ["INT = 57", "Int = 57", "jmspriority = 6", "body = 'text'"],
    "EMS-CLI-A12": ["name = 'SMITH'", "name = ' Smith'", "yes = 'true'", "int = '57'", "uni = 'Grusse'"],
    "EMS-CLI-A13": [
        "absent = 1 AND int = 57",
        "int = 57 AND absent = 1",
        "absent = 1 OR int = 0",
        "NOT (absent = 1 OR int = 0)",
        "absent + 1 = 1",
        "absent = absent",
        "absent <> absent",
        "int / zero = 1",
        "no",
        "NOT yes",
        "int",
        "absentFlag",
        "NOT absentFlag",
    ],
    "EMS-CLI-A14": [
        "name = 57",
        "name <> 57",
        "int = TRUE",
        "int <> TRUE",
        "yes = 'TRUE'",
        "yes = 1",
        "digits = 57",
        "digits > 5",
        "digits + 1 = 58",
        "name + 1 = 1",
        "NOT (absent > 1)",
        "NOT (absent = 'x')",
        "NOT (absent <> 'x')",
        "NOT (name = absent)",
        "NOT (absent = 1 OR name = 57)",
        "name > empty",
        "name >= name",
        "empty < name",
        "name <= name",
        "yes > no",
        "yes >= yes",
        "name BETWEEN empty AND name",
        "int > 57",
        "int < 57",
        "int <> 57",
        "NOT int = 57 OR no = TRUE",
    ],
    "EMS-CLI-A15": [
        "int BETWEEN 58 AND 60",
        "int BETWEEN 60 AND 50",
        "int NOT BETWEEN 57 AND 60",
        "absent BETWEEN 1 AND 2",
        "absent NOT BETWEEN 1 AND 2",
        "int BETWEEN absent AND 60",
        "name BETWEEN 1 AND 2",
        "digits BETWEEN 1 AND 100",
    ],
    "EMS-CLI-A16": [
        "name IN ('smith', 'Jones')",
        "name NOT IN ('Smith', 'Jones')",
        "absent IN ('a')",
        "absent NOT IN ('a')",
        "name IN ('Smit', 'Smithy', '')",
    ],
    "EMS-CLI-A17": [
        "name LIKE 's%'",
        "name LIKE 'Smit'",
        "name LIKE 'S_th'",
        "name LIKE ''",
        "name LIKE '______'",
        "name NOT LIKE '%'",
        "empty LIKE '_'",
        "absent LIKE '%'",
        "absent NOT LIKE '%'",
        "percent LIKE '99!%' ESCAPE '!'",
        "name LIKE 'S!%' ESCAPE '!'",
        "int LIKE '57'",
        "int LIKE '%'",
        "under LIKE 'a!_c' ESCAPE '!'",
    ],
    "EMS-CLI-A18": ["name IS NULL", "absent IS NOT NULL", "empty IS NULL", "zero IS NULL", "JMSType IS NULL"],
}

# Not a selector at all, or one that the provider refuses rather than judge it wrongly (README.md: never "no match").
INVALID = {
    "EMS-CLI-A10": ["=", "int =", "= 57", "57", "int = 57 AND", "AND int = 57", "(int = 57", "int = 57)"],
    "EMS-CLI-A11": [
        "1a = 1", "a-b-c", "a.b = 1", "NULL = 1", "TRUE = 1 = 1", "not = 1", "between = 1", "in IN ('a')",
        "Like LIKE 'a'", "Escape = 1", "is IS NULL", "and = 1", "or = 1", "a b = 1", "#x = 1",
        "JMSReplyTo IS NULL", "JMSRedelivered = TRUE", "JMSExpiration = 0", "JMSDeliveryTime > 0",
    ],
    "EMS-CLI-A12": ["name = 'open", "name = \"Smith\"", "int = 57x", "int = 1e", "name = 'it's'", "int = 0x1G"],
    "EMS-CLI-A14": ["int == 57", "int != 57", "int >< 57", "int = < 57", "int + = 57", "* int = 57", "int 57",
                    "int = 1 = 1"],
    "EMS-CLI-A15": ["int BETWEEN 1", "int BETWEEN 1 AND", "int BETWEEN AND 2", "BETWEEN 1 AND 2", "int BETWEEN 1 OR 2"],
    "EMS-CLI-A16": ["name IN ()", "name IN ('a',)", "name IN 'a'", "name IN (1, 2)", "name IN (other)", "'a' IN ('a')",
                    "name IN ('a' 'b')"],
    "EMS-CLI-A17": ["name LIKE", "name LIKE 5", "name LIKE other", "name LIKE 'a' ESCAPE", "name LIKE 'a' ESCAPE 'ab'",
                    "name LIKE 'a' ESCAPE ''", "name LIKE 'a!' ESCAPE '!'", "'a' LIKE 'a'"],
    "EMS-CLI-A18": ["name IS", "name IS NOT", "name IS TRUE", "name NULL", "IS NULL", "name NOT NULL"],
}  # fmt: skip


ROWS = pytest.mark.covers(
    "EMS-CLI-A10", "EMS-CLI-A11", "EMS-CLI-A12", "EMS-CLI-A13", "EMS-CLI-A14", "EMS-CLI-A15", "EMS-CLI-A16",
    "EMS-CLI-A17", "EMS-CLI-A18",
)  # fmt: skip


# Fiorano's rows speak of paths in XML; what they say of operators and literals holds of properties.
FIORANO = pytest.mark.covers("FMQ-CLI-34", "FMQ-CLI-39", "FMQ-CLI-42", "FMQ-CLI-44")


async def matching(provider: Provider, session: Session, queue: Queue, selectors: Sequence[str]) -> list[str]:
    """The selectors that match the message."""
    await session.send(queue, "text", properties=PROPERTIES, **HEADER)
    return [selector for selector in selectors if await provider.browse(queue, selector)]


async def verdict(provider: Provider, queue: Queue, selector: str) -> bool | None:
    """Whether it matches anything there; None: it is refused as a selector."""
    try:
        return bool(await provider.browse(queue, selector))
    except Exception as error:
        if provider.refusal_of(error) is not Refusal.INVALID_SELECTOR:
            raise
        return None


@ROWS
@FIORANO
@pytest.mark.covers("EMS-CLI-A19")
@pytest.mark.parametrize("selectors", TRUE.values(), ids=TRUE.keys())
async def test_these_match(provider: Provider, session: Session, queue: Queue, selectors: list[str]) -> None:
    assert await matching(provider, session, queue, selectors) == selectors


@ROWS
@FIORANO
@pytest.mark.parametrize("selectors", FALSE.values(), ids=FALSE.keys())
async def test_these_do_not_match(provider: Provider, session: Session, queue: Queue, selectors: list[str]) -> None:
    assert await matching(provider, session, queue, selectors) == []


@ROWS
@pytest.mark.parametrize("selectors", INVALID.values(), ids=INVALID.keys())
async def test_these_are_refused(provider: Provider, session: Session, queue: Queue, selectors: list[str]) -> None:
    taken = []
    for selector in selectors:
        if await verdict(provider, queue, selector) is not None:
            taken.append(selector)
        else:
            with refused(provider, Refusal.INVALID_SELECTOR):
                await session.consumer(queue, selector=selector)
    assert taken == []


# Java's other ways to write numbers, and comparisons that JMS does not have: refused, or judged rightly.
EITHER = {
    "int = 0x39": True,
    "int = 57L": True,
    "float = 1.5f": True,
    "name > 'A'": False,
    "yes > no": False,
    "zero < 7E.3": True,
}


@pytest.mark.covers("EMS-CLI-A12", "EMS-CLI-A14")
async def test_what_the_manual_leaves_open_is_refused_or_judged_rightly(
    provider: Provider, session: Session, queue: Queue
) -> None:
    await session.send(queue, "text", properties=PROPERTIES, **HEADER)
    for selector, right in EITHER.items():
        assert await verdict(provider, queue, selector) in (None, right), selector


@pytest.mark.covers("EMS-CLI-A12", "EMS-CLI-A16")
async def test_a_set_may_have_32767_texts_and_no_more(provider: Provider, session: Session, queue: Queue) -> None:
    await session.send(queue, "x", properties={"name": "7ffe"})
    most = ",".join(f"'{number:04x}'" for number in range(32_767))
    assert len(await provider.browse(queue, f"name IN ({most})")) == 1
    with refused(provider, Refusal.INVALID_SELECTOR):
        await provider.browse(queue, f"name IN ({most},'more')")


@pytest.mark.covers("EMS-CLI-B31")
async def test_a_long_chain_of_ors_is_judged_rightly_and_the_broker_lives(
    provider: Provider, session: Session, queue: Queue
) -> None:
    await session.send(queue, "x", properties={"n": 4_990})
    chain = " OR ".join(f"n = {number}" for number in range(5_000))
    assert len(await provider.browse(queue, chain)) == 1
    deep = "(" * 20_000 + "n = 1" + ")" * 20_000
    assert await verdict(provider, queue, deep) in (None, False)
    assert len(await provider.browse(queue, "n = 4990")) == 1


@pytest.mark.covers("EMS-CLI-A10", "EMS-CLI-A13", "FMQ-CLI-31")
async def test_consumers_filter_at_the_server_and_an_unknown_is_no_match(
    provider: Provider, session: Session, queue: Queue, topic: Topic
) -> None:
    for place in (queue, topic):
        consumer = await session.consumer(place, selector="n > 1 OR name = 'end'")
        for number in (1, 2, 3):
            await session.send(place, str(number), properties={"n": number})
        await session.send(place, "no property")
        await session.send(place, "end", properties={"name": "end"})
        assert await until_end(consumer) == ["2", "3"]
    assert [one.body for one in await provider.browse(queue)] == ["1", "no property"]


@pytest.mark.covers("EMS-CLI-A13")
async def test_a_division_by_zero_is_no_match_and_the_consumer_lives(session: Session, queue: Queue) -> None:
    consumer = await session.consumer(queue, selector="10 / n = 5")
    for number in (0, 2):
        await session.send(queue, str(number), properties={"n": number})
    assert await bodies(consumer, 1) == ["2"]
    await send_all(session, queue, "again", properties={"n": 2})
    assert await bodies(consumer, 1) == ["again"]
