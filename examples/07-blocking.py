"""The same without asyncio."""

import sys

from sterna import blocking


def main(url: str) -> None:
    with blocking.connect(url) as connection:
        with connection.producer("letters") as producer:
            for number in range(3):
                producer.send_soon(f"letter {number}")
        with connection.consumer("letters") as consumer:
            while message := consumer.receive(timeout=1):
                print(message.body)


if __name__ == "__main__":
    main(*sys.argv[1:2] or ["sterna://127.0.0.1:7222"])
