"""What gateways tell each other of the owners of topics: asked once, told together, not waited for long."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.brokers.pulsar import Broker, Host
from penstock.errors import ClusterError
from penstock.gateway.pulsar import ownership as module
from penstock.gateway.pulsar.ownership import Ownership, read_owners, write_owners

ONE, TWO = Host("broker-1", 6650), Host("broker-2", 6650)


class Scene:
    """One gateway that hears itself at once, with a clock that stands still unless it is moved."""

    def __init__(self) -> None:
        self.now = 100.0
        self.words: list[bytes] = []
        self.asked: Counter[str] = Counter()
        self.changes = 0
        self.deaf = False
        self.owner = ONE
        self.error: ClusterError | None = None
        self.gate = asyncio.Event()
        self.gate.set()
        self.under_way = self.most_under_way = 0
        self.ownership = Ownership(self._tell, on_change=self._changed, clock=lambda: self.now)

    async def _tell(self, word: bytes) -> None:
        self.words.append(word)
        if not self.deaf:
            self.ownership.hear(word)

    def _changed(self) -> None:
        self.changes += 1

    async def find(self, topic: str) -> Broker:
        self.asked[topic] += 1
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        await self.gate.wait()
        await asyncio.sleep(0)
        self.under_way -= 1
        if self.error is not None:
            raise self.error
        return Broker(self.owner)

    async def know(self, *topics: str) -> list[Host | None]:
        await self.ownership.know(topics, self.find)
        return [self.ownership.owner(topic) for topic in topics]


def run(work: Callable[[Scene], Awaitable[None]]) -> None:
    async def life() -> None:
        scene = Scene()
        await work(scene)
        scene.gate.set()
        await scene.ownership.close()

    asyncio.run(life())


def test_a_thousand_topics_are_asked_for_once_and_told_together() -> None:
    async def work(scene: Scene) -> None:
        topics = [f"persistent://public/default/orders-partition-{number}" for number in range(1000)]
        assert set(await scene.know(*topics)) == {ONE}
        assert set(await scene.know(*topics)) == {ONE}
        assert set(scene.asked.values()) == {1}
        assert scene.most_under_way <= 64
        assert len(scene.words) < 100
        assert max(map(len, scene.words)) < 64 * 1024

    run(work)


def test_what_is_old_is_asked_for_again_and_not_waited_for() -> None:
    async def work(scene: Scene) -> None:
        await scene.know("t")
        scene.now += 31
        scene.owner = TWO
        scene.gate.clear()
        assert await scene.know("t") == [ONE]
        scene.gate.set()
        async with asyncio.timeout(5):
            while scene.ownership.owner("t") != TWO:
                await asyncio.sleep(0.01)
        assert scene.asked["t"] == 2
        assert scene.changes == 2

    run(work)


def test_a_broker_that_does_not_answer_is_not_waited_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_PATIENCE", 0.01)

    async def work(scene: Scene) -> None:
        scene.gate.clear()
        assert await scene.know("t") == [None]
        assert await scene.know("t") == [None]
        assert scene.asked["t"] == 1

    run(work)


def test_what_cannot_be_looked_up_is_left_alone_for_a_while() -> None:
    async def work(scene: Scene) -> None:
        scene.error = ClusterError("no such topic")
        assert await scene.know("t") == [None]
        assert await scene.know("t") == [None]
        assert scene.asked["t"] == 1
        scene.now += 6
        scene.error = None
        assert await scene.know("t") == [ONE]

    run(work)


def test_what_was_not_heard_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_PATIENCE", 0.05)

    async def work(scene: Scene) -> None:
        scene.deaf = True
        assert await scene.know("t") == [None]
        assert scene.words

    run(work)


def test_the_oldest_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST", 2)

    async def work(scene: Scene) -> None:
        for topic in ("a", "b", "a", "c"):
            scene.ownership.hear(next(write_owners({topic: ONE})))
        assert [scene.ownership.owner(topic) for topic in "abc"] == [ONE, None, ONE]

    run(work)


def test_one_that_is_closed_asks_and_tells_nothing() -> None:
    async def work(scene: Scene) -> None:
        await scene.know("t")
        await scene.ownership.close()
        scene.ownership.noticed("t", Broker(TWO))
        assert await scene.know("other") == [None]
        assert len(scene.words) == 1

    run(work)


@given(
    st.binary()
    | st.recursive(st.none() | st.integers() | st.text(), st.lists).map(json.dumps).map(str.encode)
)
def test_what_is_no_word_of_ours_says_nothing(data: bytes) -> None:
    assert read_owners(data) == {}
    found = read_owners(b'{"owners": ' + data + b"}")
    assert all(isinstance(owner, Host) for owner in found.values())


@pytest.mark.parametrize("rows", [b"[" * 60_000, b'[["broker-1", Infinity, ["t"]]]}', b'[["broker-1", 1]]}'])
def test_a_broken_word_says_nothing(rows: bytes) -> None:
    assert read_owners(b'{"owners": ' + rows) == {}


@given(
    st.dictionaries(
        st.text(max_size=20), st.builds(Host, st.text(max_size=5), st.integers(0, 65535)), max_size=300
    )
)
def test_all_that_is_told_is_heard(owners: dict[str, Host]) -> None:
    heard: dict[str, Host] = {}
    for word in write_owners(owners):
        heard |= read_owners(word)
    assert heard == owners
