"""Stored bytes: Kafka's own layouts, a round trip, and bytes that make no sense."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import WireError
from penstock.gateway.groups.group import Group, Member
from penstock.gateway.groups.schemas import (
    Commit,
    GroupKey,
    OffsetKey,
    group_record,
    offset_record,
    read_group,
    read_key,
    read_offset,
)
from penstock.gateway.groups.states import State

GOLDEN_OFFSETS = {
    # Written by hand from Kafka's OffsetCommitValue.json, one of each version.
    "0000 000000000000002a 0001 6d 0000000000000005": Commit(offset=42, metadata="m", committed_at=5),
    "0001 000000000000002a 0001 6d 0000000000000005 0000000000000009": Commit(
        offset=42, metadata="m", committed_at=5, expires_at=9
    ),
    "0002 000000000000002a 0001 6d 0000000000000005": Commit(offset=42, metadata="m", committed_at=5),
    "0003 000000000000002a 00000007 0001 6d 0000000000000005": Commit(
        offset=42, leader_epoch=7, metadata="m", committed_at=5
    ),
    "0004 000000000000002a 00000007 02 6d 0000000000000005 00": Commit(
        offset=42, leader_epoch=7, metadata="m", committed_at=5
    ),
}


@pytest.mark.parametrize("text", GOLDEN_OFFSETS)
def test_every_version_of_an_offset_is_read(text: str) -> None:
    assert read_offset(bytes.fromhex(text)) == GOLDEN_OFFSETS[text]


def test_keys_are_kafkas() -> None:
    key, value = offset_record(OffsetKey("g", "t", 3), None)
    assert (key, value) == (bytes.fromhex("0001 0001 67 0001 74 00000003"), None)
    assert read_key(key) == OffsetKey("g", "t", 3)
    key, value = group_record("g", None)
    assert (key, value) == (bytes.fromhex("0002 0001 67"), None)
    assert read_key(key) == GroupKey("g")
    assert read_key(bytes.fromhex("0003 0001 67")) is None


texts = st.text(max_size=20)
commits = st.builds(
    Commit,
    offset=st.integers(0, 2**63 - 1),
    leader_epoch=st.integers(-1, 2**31 - 1),
    metadata=texts,
    committed_at=st.integers(0, 2**62),
)


@given(commits)
def test_offsets_come_back(commit: Commit) -> None:
    _, value = offset_record(OffsetKey("g", "t", 0), commit)
    assert value is not None and read_offset(value) == commit


def test_an_expiry_of_its_own_comes_back() -> None:
    commit = Commit(offset=1, metadata="x", committed_at=2, expires_at=3)
    _, value = offset_record(OffsetKey("g", "t", 0), commit)
    assert value is not None and read_offset(value) == commit


def member(name: str, instance: str | None = None) -> Member:
    return Member(
        member_id=name,
        instance_id=instance,
        client_id="client",
        client_host="/10.0.0.1",
        session=10.0,
        rebalance=60.0,
        protocols=(("range", b"wanted"),),
        assignment=b"given",
        expires=17.0,
    )


def test_a_group_comes_back_stable() -> None:
    group = Group(
        group_id="g",
        state=State.STABLE,
        protocol_type="consumer",
        generation=4,
        protocol="range",
        leader="a",
        members={"a": member("a"), "b": member("b", "one")},
        statics={"one": "b"},
        changed_at=1234,
    )
    _, value = group_record("g", group)
    assert value is not None and read_group("g", value, 7.0) == group


def test_an_empty_group_comes_back_empty() -> None:
    group = Group(group_id="g", protocol_type="consumer", generation=9, changed_at=5)
    _, value = group_record("g", group)
    assert value is not None and read_group("g", value, 0.0) == group


def test_a_flexible_group_is_read() -> None:
    # Version 4 by hand: type "c", generation 2, protocol "r", leader "a", time 5, one member, its tags, tags.
    text = (
        "0004 02 63 00000002 02 72 02 61 0000000000000005 02"
        "02 61 00 02 63 02 68 0000ea60 00002710 02 77 02 67 00 00"
    )
    found = read_group("g", bytes.fromhex(text), 0.0)
    assert (found.generation, found.protocol, found.leader) == (2, "r", "a")
    one = found.members["a"]
    assert (one.rebalance, one.session, one.protocols, one.assignment) == (60.0, 10.0, (("r", b"w"),), b"g")


@given(st.binary(max_size=80))
def test_hostile_bytes_are_refused_in_words(data: bytes) -> None:
    for read in (read_key, read_offset, lambda raw: read_group("g", raw, 0.0)):
        try:
            read(data)
        except WireError:
            continue
