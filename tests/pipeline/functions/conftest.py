"""Events on their way into a function, and invokers whose processes end with the test."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from penstock.events import CloudEvent
from penstock.pipeline.functions.invoker import FunctionInvoker
from penstock.pipeline.functions.process import Bounds, Settings
from penstock.pipeline.ports import Routed
from penstock.record import KafkaRecord

MODULES = str(Path(__file__).parent / "modules")


@pytest.fixture
def routed() -> Callable[..., Routed]:
    def make(number: int, data: Any = None, key: bytes = b"k", **attributes: str) -> Routed:
        event = CloudEvent(
            {
                "id": f"e{number}",
                "source": "/shop",
                "type": "placed",
                "datacontenttype": "application/json",
                **attributes,
            },
            json.dumps(data or {}).encode(),
        )
        record = KafkaRecord(key=key, topic="orders", partition=3, offset=number, timestamp=1000)
        return Routed(
            event=event, key=key, headers=(("app", b"x"),), record=record, origin=("/shop", f"e{number}")
        )

    return make


@pytest.fixture
def invoker() -> Iterator[Callable[..., FunctionInvoker]]:
    made: list[FunctionInvoker] = []

    def make(
        function: str | None,
        *,
        key: str | None = None,
        largest: int = 1 << 20,
        granted: Mapping[str, str] | None = None,
        **more: Any,
    ) -> Any:
        settings = Settings(
            route="r",
            function=function and f"user_functions:{function}",
            key=key and f"user_functions:{key}",
            path=(MODULES,),
            largest=largest,
            environment=tuple((granted or {}).items()),
        )
        more.setdefault("bounds", Bounds(seconds=20))
        made.append(FunctionInvoker(settings=settings, **more))
        return made[-1]

    yield make
    for each in made:
        each.close()
