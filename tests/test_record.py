"""penstock.record: what travels is a plain, frozen value that loses nothing."""

from __future__ import annotations

import pickle
from dataclasses import FrozenInstanceError, replace

import pytest

from penstock.record import KafkaRecord, PulsarMessage

HEADERS = (("trace", b"1"), ("trace", b"2"), ("empty", b""), ("null", None))


def test_repeated_and_null_headers_keep_their_order() -> None:
    record = KafkaRecord(value=b"v", headers=HEADERS)
    assert record.headers == HEADERS
    assert record != KafkaRecord(value=b"v", headers=HEADERS[::-1])


def test_a_tombstone_is_not_an_empty_value() -> None:
    assert KafkaRecord(value=None) != KafkaRecord(value=b"")
    assert PulsarMessage(payload=None) != PulsarMessage(payload=b"")


@pytest.mark.parametrize(
    "thing", [KafkaRecord(key=b"k", headers=HEADERS), PulsarMessage(properties=(("a", "b"),))]
)
def test_it_is_a_value(thing: KafkaRecord | PulsarMessage) -> None:
    assert pickle.loads(pickle.dumps(thing)) == thing == replace(thing)
    assert hash(thing) == hash(replace(thing))
    with pytest.raises(FrozenInstanceError):
        thing.topic = "t"  # type: ignore[misc]
    with pytest.raises((AttributeError, TypeError)):
        thing.extra = 1  # type: ignore[union-attr]
