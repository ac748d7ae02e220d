"""Records of the offsets topic as Pulsar batches: a round trip, what compaction leaves, foreign bytes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.gateway.groups.schemas import read_key
from penstock.gateway.pulsar.offsets_log import mark_record, read_records, write_records
from penstock.wire.pulsar.pulsar_pb2 import SingleMessageMetadata

records = st.lists(
    st.tuples(st.binary(max_size=20), st.none() | st.binary(min_size=1, max_size=20)), max_size=5
)


@given(records)
def test_records_come_back(given_: list[tuple[bytes, bytes | None]]) -> None:
    assert list(read_records(write_records(given_), len(given_))) == given_


@given(st.binary(max_size=100), st.integers(0, 5))
def test_bytes_of_others_are_left_out(data: bytes, count: int) -> None:
    assert len(list(read_records(data, count))) <= count


@given(records, st.integers(0, 200))
def test_a_batch_that_is_cut_gives_what_is_whole(given_: list[tuple[bytes, bytes | None]], size: int) -> None:
    found = list(read_records(write_records(given_)[:size], len(given_)))
    assert found == given_[: len(found)]


def test_what_compaction_has_left_out_is_not_there() -> None:
    head = SingleMessageMetadata(partition_key="", payload_size=0, compacted_out=True).SerializeToString()
    payload = len(head).to_bytes(4, "big") + head + write_records([(b"k", b"v")])
    assert list(read_records(payload, 2)) == [(b"k", b"v")]


def test_a_mark_says_nothing_about_groups() -> None:
    key, value = mark_record("node 1")
    assert read_key(key) is None
    assert value == b"node 1"
