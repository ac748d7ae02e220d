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
