"""Transactions are not served: a client hears so at once, and not by its own time-out."""

from __future__ import annotations

import asyncio
import time

import pytest

from penstock.testing import MemoryKafka


def test_librdkafka_is_refused_at_once() -> None:
    from confluent_kafka import KafkaError, KafkaException, Producer

    with MemoryKafka() as kafka:
        producer = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": "mine"})
        began = time.monotonic()
        with pytest.raises(KafkaException) as caught:
            producer.init_transactions(60)
        error = caught.value.args[0]
        assert error.code() == KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        assert error.fatal() and not error.retriable()
        assert time.monotonic() - began < 30


def test_aiokafka_is_refused_at_once() -> None:
    from aiokafka import AIOKafkaProducer
    from aiokafka.errors import KafkaError

    async def scenario(bootstrap: str) -> None:
        producer = AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id="mine")
        try:
            async with asyncio.timeout(30):
                with pytest.raises(KafkaError, match=r"(?i)transactional"):
                    await producer.start()
        finally:
            await producer.stop()

    with MemoryKafka() as kafka:
        asyncio.run(scenario(kafka.bootstrap))


@pytest.mark.filterwarnings("ignore:(read|open)_text is deprecated:DeprecationWarning")
def test_kafka_python_is_refused_at_once() -> None:
    from kafka import KafkaProducer
    from kafka.errors import KafkaError

    with MemoryKafka() as kafka:
        producer = KafkaProducer(bootstrap_servers=kafka.bootstrap, transactional_id="mine")
        began = time.monotonic()
        with pytest.raises(KafkaError, match=r"(?i)transactional"):
            producer.init_transactions()
        producer.close(timeout=5)
        assert time.monotonic() - began < 30
