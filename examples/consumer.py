"""Prints answers with plain aiokafka, in a consumer group of its own: python examples/consumer.py [bootstrap]."""

import asyncio
import json
import sys
from typing import Any

import msgpack
from aiokafka import AIOKafkaConsumer


def decode(value: bytes) -> dict[str, Any]:
    """An answer comes in the encoding of its event: `{` begins JSON, anything else is MessagePack."""
    answer: dict[str, Any] = json.loads(value) if value[:1] == b"{" else msgpack.unpackb(value)
    return answer


async def main(bootstrap: str = "127.0.0.1:9092") -> None:
    """Read `responses` from its beginning on; `response_id` tells a repeated record from a new one."""
    seen: set[str] = set()
    async with AIOKafkaConsumer("responses", bootstrap_servers=bootstrap, group_id="example-consumer", auto_offset_reset="earliest") as consumer:
        async for record in consumer:
            answer = decode(record.value)
            if answer["response_id"] in seen:
                continue
            seen.add(answer["response_id"])
            why = answer["reason"] or "in time"
            print(f"{answer['session_id']}: {answer['text']!r} ({answer['outcome']}, {why}, {answer['latency_ms']['total']:.0f} ms)", flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
