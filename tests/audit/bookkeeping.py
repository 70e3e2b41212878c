"""The ledger of a living history: records of the format's own writer, in the order in which the SDK has them."""

from pathlib import Path

import xxhash
from sterna import _ledger_format as form
from sterna._proto.sterna.v1 import message_pb2 as message_pb
from sterna._proto.sterna.v1 import messaging_pb2 as pb

_TAKEN = 1


class Book:
    """What a sender and a consumer write down; `keep` makes it a file."""

    def __init__(self, broker: str, store: str) -> None:
        self._records: list[bytes] = []
        self._numbers = 0
        self._producers: dict[str, tuple[int, int]] = {}
        self._acknowledgements = 0
        self._link = self._number()
        texts = (broker, "bank", store, "127.0.0.1:1", "booked")
        self._write(form.LINK, self._link, 0, 1, 0, tail=b"".join(map(form.text, texts)))

    def _number(self) -> int:
        self._numbers += 1
        return self._numbers

    def _write(self, kind: int, *fields: int, tail: bytes = b"") -> None:
        self._records.append(form.record(kind, *fields, tail=tail))

    def opened(self, name: str, *, is_topic: bool, told: pb.ProducerOpened) -> None:
        """A producer is there."""
        of_name, of_producer = self._number(), self._number()
        self._write(form.NAME, of_name, form.TOPIC_NAME if is_topic else form.QUEUE_NAME, tail=form.text(name))
        fields = (of_producer, self._link, 1, of_name, told.incarnation, form.IS_CONFIRMED)
        self._write(form.PRODUCER, *fields, tail=form.text(told.message_id_prefix) + form.text(""))
        self._producers[name] = of_producer, of_name

    def sent(self, name: str, first: int, messages: list[message_pb.Message]) -> None:
        """Messages are about to leave."""
        sizes = b"".join(message.ByteSize().to_bytes(4, "little") for message in messages)
        sums = b"".join(xxhash.xxh3_128_digest(message.text) for message in messages)
        producer, of_name = self._producers[name]
        self._write(form.SENT, producer, of_name, 0, 5, first, len(messages), tail=sizes + sums)

    def confirmed(self, name: str, one: pb.Confirmed) -> None:
        """An answer came."""
        self._write(form.CONFIRMED, self._producers[name][0], one.first, one.last, int(one.durability), one.arrived_ms)

    def received(self, name: str, source: int, deliveries: list[pb.Delivery]) -> None:
        """An application was handed these, by a consumer of its own."""
        of_name, consumer = self._number(), self._number()
        self._write(form.NAME, of_name, form.QUEUE_NAME, tail=form.text(name))
        self._write(form.CONSUMER, consumer, self._link, 1, of_name, source, 1, 0, tail=form.text(""))
        for delivery in deliveries:
            prefix, _, numbered = delivery.message_id.rpartition(":")
            of_prefix = self._number()
            self._write(form.NAME, of_prefix, form.PREFIX, tail=form.text(f"{prefix}:"))
            row = (delivery.sequence, of_prefix, int(numbered), int(delivery.redelivered), 1)
            self._write(form.RECEIVED, consumer, 6, 1, tail=form.RECEIVED_ROW.pack(*row))

    def acknowledged(self, source: int, sequences: list[int]) -> None:
        """An acknowledgement was sent, and taken."""
        self._acknowledgements += 1
        rows = b"".join(form.ACKNOWLEDGED_ROW.pack(source, 1, one, one) for one in sequences)
        fields = (self._acknowledgements, self._link, 1, 0, 7, len(sequences))
        self._write(form.ACKNOWLEDGING, *fields, tail=rows)
        self._write(form.ACKNOWLEDGED, self._acknowledgements, _TAKEN, 0)

    def keep(self, path: Path, number: int = 1) -> None:
        """Writes the file; `number` tells ledgers apart."""
        head = {"what": "sterna client ledger", "checksum": form.CHECKSUM, "client_id": "booked", "file": 1}
        self._write(form.END, 0)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(form.head({**head, "ledger": f"{number:032x}"}) + b"".join(form.blocks(0, self._records)))
