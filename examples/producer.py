"""Sends one event with plain aiokafka and MessagePack: python examples/producer.py "What is tea made of?" [session] [bootstrap]."""

import asyncio
import sys
import time
import uuid

import msgpack
from aiokafka import AIOKafkaProducer


async def main(text: str, session: str = "example", bootstrap: str = "127.0.0.1:9092") -> None:
    """Produce one event to `interactions`; its answer goes to `responses`, on the same partition number."""
    event = {
        "event_id": str(uuid.uuid4()),
        "session_id": session,
        "text": text,
        "occurred_at_ms": time.time_ns() // 1_000_000,
        "deadline_ms": 1500,
        "answer": {"max_tokens": 32},
    }
    async with AIOKafkaProducer(bootstrap_servers=bootstrap, acks="all", enable_idempotence=True) as producer:
        sent = await producer.send_and_wait("interactions", msgpack.packb(event), key=session.encode())
    print(f"{event['event_id']} is at offset {sent.offset} of partition {sent.partition}")


if __name__ == "__main__":
    asyncio.run(main(*(sys.argv[1:] or ["What is tea made of?"])))
