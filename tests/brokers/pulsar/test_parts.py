"""The parts of the Pulsar client that need no broker: window, flow, back-off, addresses, ids, refusals."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.brokers.pulsar import Host, ServiceUrl, is_retriable
from penstock.brokers.pulsar.backoff import BackOff
from penstock.brokers.pulsar.flow import FlowControl
from penstock.brokers.pulsar.message_ids import ack_set, from_wire, to_wire
from penstock.brokers.pulsar.refusal import _ROWS, refusal
from penstock.brokers.pulsar.window import Pending, Window
from penstock.errors import ConfigError, InternalError, Unreachable, WireError
from penstock.wire.pulsar import EARLIEST, LATEST, MessageId, SendReceipt
from penstock.wire.pulsar.pulsar_pb2 import ServerError

# Window


def pending(sequence_id: int, last: int | None = None, size: int = 10) -> Pending:
    done = asyncio.get_running_loop().create_future()
    return Pending(memoryview(bytes(size)), sequence_id, sequence_id if last is None else last, 0.0, done)


def receipt(sequence_id: int) -> SendReceipt:
    return SendReceipt(1, sequence_id, 0, MessageId(5, sequence_id))


def test_receipts_answer_the_head(run: Any) -> None:
    async def main() -> None:
        window = Window(entries=10, size=1000)
        entries = [pending(0, 4), pending(5), pending(6)]
        for entry in entries:
            window.add(entry)
        window.receive(receipt(0))
        assert entries[0].done.result().message_id == MessageId(5, 0)
        window.receive(receipt(0))
        assert (len(window), window.size, window.late_receipts) == (2, 20, 1)
        with pytest.raises(WireError, match="came before that for 5"):
            window.receive(receipt(6))
        assert window.find(6) is entries[2]
        window.fail(entries[2], Unreachable("x"))
        assert isinstance(entries[2].done.exception(), Unreachable)
        window.fail_all(Unreachable("y"))
        assert (len(window), window.size, window.head) == (0, 0, None)
        window.receive(receipt(7))
        assert window.late_receipts == 2

    run(main)


def test_sequence_ids_must_grow(run: Any) -> None:
    async def main() -> None:
        window = Window(entries=10, size=1000)
        window.add(pending(0, 4))
        with pytest.raises(InternalError, match="does not follow"):
            window.add(pending(4))

    run(main)


@pytest.mark.parametrize(("entries", "size"), [(2, 1000), (100, 25)])
def test_a_full_window_waits(run: Any, entries: int, size: int) -> None:
    async def main() -> None:
        window = Window(entries=entries, size=size)
        window.add(pending(0))
        window.add(pending(1))
        waiting = asyncio.create_task(window.wait_for_room(10))
        await asyncio.sleep(0)
        assert not waiting.done()
        window.receive(receipt(0))
        await waiting

    run(main)


def test_an_entry_larger_than_the_window_goes_alone(run: Any) -> None:
    async def main() -> None:
        window = Window(entries=2, size=10)
        assert window.has_room(1000)
        window.add(pending(0, size=1000))
        assert not window.has_room(1)

    run(main)


# Flow


@given(
    budget=st.integers(1_000, 100_000),
    steps=st.lists(st.tuples(st.booleans(), st.integers(1, 500), st.integers(1, 30_000)), max_size=60),
)
def test_a_reader_never_holds_more_than_twice_its_budget(
    budget: int, steps: list[tuple[bool, int, int]]
) -> None:
    flow = FlowControl(budget=budget)
    held: list[int] = []
    granted = flow.grant()
    assert granted >= 1
    for take, messages, size in steps:
        if take and held:
            flow.taken(held.pop(0))
        elif flow.received(messages, size):
            held.append(size)
            granted -= messages
        granted += (more := flow.grant())
        assert more >= 0
        assert flow.held == sum(held)
        assert flow.held <= 2 * budget or len(held) == 1
        # Whoever holds less than three quarters has asked for something, so that no reader stands still.
        assert flow.held + flow._expected >= 0.75 * budget or granted >= 1


def test_an_entry_that_was_inflated_counts_as_what_it_takes() -> None:
    flow = FlowControl(budget=10_000)
    flow.grant()
    assert flow.received(10, 100)
    flow.resized(10, 100, 6_000)
    assert flow.held == 6_000 and not flow.is_low
    flow.taken(6_000)
    assert flow.held == 0


def used_to(messages: int, size: int, *, budget: int = 1_000_000) -> FlowControl:
    """Give the account of a reader that has seen many entries of one size."""
    flow = FlowControl(budget=budget)
    for _ in range(50):
        flow.grant()
        flow.received(messages, size)
        flow.taken(size)
    return flow


def test_permits_follow_the_size_of_messages() -> None:
    flow = used_to(10, 1_000)
    assert 9_000 < flow._outstanding + flow.grant() <= 10_000


def test_one_small_message_does_not_ask_for_a_flood() -> None:
    flow = used_to(1, 10_000)
    flow.received(1, 10)
    assert (flow._outstanding + flow.grant()) * 10_000 < 1.5 * 1_000_000


def test_one_large_message_is_expected_again_at_once() -> None:
    flow = used_to(10, 1_000)
    flow.restart()
    flow.received(1, 100_000)
    flow.taken(100_000)
    assert flow._outstanding + flow.grant() == 10


def test_grants_are_few() -> None:
    flow = used_to(1, 100)
    grants = 0
    for _ in range(10_000):
        flow.received(1, 100)
        flow.taken(100)
        grants += flow.grant() > 0
    assert 3 <= grants <= 5


def test_a_smaller_budget_asks_for_less() -> None:
    flow = used_to(1, 1_000)
    flow.restart()
    flow.limit(10_000)
    assert flow.grant() in (9, 10)


def test_dropped_entries_are_asked_for_again() -> None:
    flow = FlowControl(budget=1_000)
    flow.grant()
    assert flow.received(1, 1_500)
    assert not flow.received(1, 600)
    assert not flow.is_low
    flow.taken(1_500)
    flow.restart()
    assert flow.is_low and flow.grant() == 1


# Back-off


@given(chance=st.floats(0, 1), first=st.floats(0.001, 1), longest=st.floats(1, 60))
def test_delays_grow_to_the_longest(chance: float, first: float, longest: float) -> None:
    backoff = BackOff(first=first, longest=longest, chance=lambda: chance)
    delays = [backoff.next() for _ in range(40)]
    assert delays == sorted(delays)
    assert first / 2 <= delays[0] <= first
    assert longest / 2 <= delays[-1] <= longest
    backoff.reset()
    assert backoff.next() == delays[0]


# Addresses


@pytest.mark.parametrize(
    ("text", "tls", "hosts"),
    [
        ("pulsar://a", False, (Host("a", 6650),)),
        ("pulsar+ssl://a:1/", True, (Host("a", 1),)),
        ("pulsar://a:1, b:2", False, (Host("a", 1), Host("b", 2))),
        ("pulsar://[::1]:7", False, (Host("::1", 7),)),
    ],
)
def test_service_urls(text: str, tls: bool, hosts: tuple[Host, ...]) -> None:
    assert ServiceUrl.parse(text) == ServiceUrl(tls, hosts)


@pytest.mark.parametrize(
    "text",
    ["", "a:1", "http://a", "pulsar://", "pulsar://a:x", "pulsar://a:99999", "pulsar://a,", "pulsar://a/b"],
)
def test_what_is_no_service_url(text: str) -> None:
    with pytest.raises(ConfigError, match="not the address of a Pulsar"):
        ServiceUrl.parse(text)


def test_a_password_in_an_address_is_not_shown() -> None:
    with pytest.raises(ConfigError) as caught:
        ServiceUrl.parse("pulsar://me:secret@host")
    assert "secret" not in str(caught.value)


def test_a_host_is_written_as_in_an_address() -> None:
    assert (str(Host("::1", 7)), str(Host("a", 7))) == ("[::1]:7", "a:7")


# Ids


@pytest.mark.parametrize("place", [EARLIEST, LATEST, MessageId(1, 2), MessageId(1, 2, 3, 4)])
def test_ids_on_the_wire(place: MessageId) -> None:
    data = to_wire(place)
    assert from_wire(type(data).FromString(data.SerializeToString())) == place


@given(size=st.integers(1, 300), data=st.data())
def test_ack_sets_name_what_is_not_done(size: int, data: st.DataObject) -> None:
    first = data.draw(st.integers(0, size - 1))
    last = data.draw(st.integers(first, size - 1))
    words, done = ack_set(size, first, last), {*range(first, last + 1)}
    assert all(-(1 << 63) <= word < 1 << 63 for word in words)
    left = {i for i in range(64 * len(words)) if (words[i // 64] >> (i % 64)) & 1}
    assert left == set(range(size)) - done


# Refusals


def test_every_code_has_a_row() -> None:
    assert sorted(_ROWS) == sorted(ServerError.values())


@pytest.mark.parametrize("code", [*ServerError.values(), 99])
def test_refusals_say_what_pulsar_said(code: int) -> None:
    error = refusal(code, "because " * 1000, where="here")
    assert error.server_error == code
    assert is_retriable(error) == error.retriable
    assert len(str(error)) < 3_000 and "because" in str(error)


def test_silence_is_retriable() -> None:
    assert is_retriable(Unreachable("x")) and is_retriable(WireError("x"))
    assert not is_retriable(ConfigError("x"))
