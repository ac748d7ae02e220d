"""An outlet that is closed in the middle: what is said of it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from penstock.errors import KafkaRefused, PenstockError, ProducerFenced, Unreachable
from penstock.pipeline.fused import outlet as module
from penstock.pipeline.fused.outlet import opened


class Producer:
    """Refuses the commit, and tells at the abort what has happened."""

    expired = False

    def __init__(self, at_abort: PenstockError | None) -> None:
        self.at_abort = at_abort
        self.closed = False

    def begin(self) -> None:
        return

    def commit(self, **_: object) -> None:
        raise KafkaRefused("cannot be committed", error_code=-1)

    def abort(self) -> None:
        if self.at_abort is not None:
            raise self.at_abort

    def close(self) -> None:
        self.closed = True


@pytest.mark.parametrize(
    ("at_abort", "told"),
    [
        (None, KafkaRefused),
        (Unreachable("nobody answers"), KafkaRefused),
        # The broker may answer an unknown error to one who is being shut out.
        (ProducerFenced("somebody else has the id", error_code=47), ProducerFenced),
    ],
)
def test_who_was_shut_out_says_so(
    monkeypatch: pytest.MonkeyPatch, at_abort: PenstockError | None, told: type[PenstockError]
) -> None:
    producer = Producer(at_abort)
    monkeypatch.setattr(module, "TransactionalProducer", lambda *_, **__: producer)
    program = SimpleNamespace(targets=())
    work: Any = SimpleNamespace(exactly_once=True, group="g", topic="t", program=program)
    cluster: Any = None
    with pytest.raises(told) as caught, opened(work, cluster, "loop") as outlet:
        outlet.commit({})
    assert type(caught.value) is told
    assert producer.closed


class Recorded:
    """A producer that notes what it is asked for."""

    def __init__(self, calls: list[str], *_: object, **__: object) -> None:
        self.calls = calls
        self.calls.append("open")

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: self.calls.append(name)


@pytest.mark.parametrize(
    ("exactly_once", "told"),
    [
        # A transaction is begun before the first batch, and anew after one that was given up.
        (True, ["open", "begin", "offer", "offer", "abort", "begin", "send", "abort", "begin", "offer"]),
        # Nothing of the old producer is under way any more when the new one writes.
        (False, ["open", "offer", "offer", "settle", "open", "send", "settle", "open", "offer"]),
    ],
)
def test_what_is_put_after_a_restart_begins_anew(
    monkeypatch: pytest.MonkeyPatch, exactly_once: bool, told: list[str]
) -> None:
    calls: list[str] = []
    for name in ("TransactionalProducer", "Producer"):
        monkeypatch.setattr(module, name, lambda *_, **__: Recorded(calls))
    program = SimpleNamespace(targets=(SimpleNamespace(topic="out"),))
    work: Any = SimpleNamespace(exactly_once=exactly_once, group="g", topic="t", program=program)
    cluster, output = None, SimpleNamespace(target=0, partition=0, body=b"")
    with opened(work, cluster, "loop") as outlet:  # type: ignore[arg-type]
        outlet.offer(output)  # type: ignore[arg-type]
        outlet.offer(output)  # type: ignore[arg-type]
        outlet.restart()
        outlet.put(output)  # type: ignore[arg-type]
        outlet.restart()
        outlet.offer(output)  # type: ignore[arg-type]
        assert calls == told
