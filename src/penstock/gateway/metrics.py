"""What the gateway counts, for Prometheus: requests, bytes, latency, errors, budgets, offsets, reconnects.

Requests are counted as they are served; what already has a number somewhere is read when somebody asks.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final

from penstock import __version__
from penstock.errors import MissingExtra
from penstock.gateway.observer import Observer
from penstock.gateway.told import name_of
from penstock.wire.kafka import APIS

if TYPE_CHECKING:
    from prometheus_client.core import Metric

__all__ = ["CONTENT_TYPE", "Metrics", "Reading"]

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_SECONDS: Final = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
_PREFIX: Final = "penstock_gateway"
_UNKNOWN: Final = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What is true now, and totals that are kept elsewhere."""

    connections: int = 0
    requests_under_way: int = 0
    bytes_under_way: int = 0
    budget_used: float = 0.0
    """The part that is under way of the fullest budget: that of a connection, or that of all together."""
    reconnects: int = 0
    offsets_counted: int = 0
    offsets_learnt: int = 0
    undecodable: Mapping[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class _Tally:
    """What was served of one API in one version."""

    requests: int = 0
    taken: int = 0
    given: int = 0
    seconds: float = 0.0
    buckets: list[int] = field(default_factory=lambda: [0] * (len(_SECONDS) + 1))
    """How many took up to each of _SECONDS, and longer; each request in one of them."""


class Metrics(Observer):
    """The counters of one gateway, in a registry of their own."""

    def __init__(self, read: Callable[[], Reading] = Reading) -> None:
        try:
            from prometheus_client import CollectorRegistry, Counter, disable_created_metrics
        except ImportError as exc:
            raise MissingExtra("gateway", "prometheus-client", purpose="counting requests") from exc
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.read = read
        self.registry = CollectorRegistry(auto_describe=False)
        counter = self._maker(Counter)
        self._errors = counter("errors", "Errors in answers.", ("api", "code"))
        self._connected = counter("connections_opened", "Connections taken.", ())
        self._closed = counter("connections_closed", "Connections that the gateway ended.", ("reason",))
        # Kept by hand, because requests are many and a labelled counter takes a lock each time.
        self._tallies: dict[tuple[int, int], _Tally] = {}
        self.registry.register(self)

    def _maker(self, kind: Any) -> Callable[..., Any]:
        return lambda name, doc, labels, **options: kind(
            f"{_PREFIX}_{name}", doc, labels, registry=self.registry, **options
        )

    # What the server tells

    def connected(self) -> None:
        """Count a connection."""
        self._connected.inc()

    def served(
        self,
        api_key: int,
        api_version: int,
        *,
        taken: int,
        given: int,
        seconds: float,
        errors: Sequence[int] = (),
    ) -> None:
        """Count a request, and each error in its answer."""
        for code in errors:
            self._errors.labels(APIS[api_key].name, name_of(code)).inc()
        tally = self._tallies.get((api_key, api_version))
        if tally is None:
            tally = self._tally(api_key, api_version)
        tally.requests += 1
        tally.taken += taken
        tally.given += given
        tally.seconds += seconds
        tally.buckets[bisect_left(_SECONDS, seconds)] += 1

    def closed(self, reason: str) -> None:
        """Count a connection that we ended."""
        self._closed.labels(reason).inc()

    def _tally(self, api_key: int, api_version: int) -> _Tally:
        api = APIS[api_key]
        # ApiVersions is answered in any version: a client must not be able to make labels without end.
        version = api_version if api.lowest <= api_version <= api.highest else _UNKNOWN
        return self._tallies.setdefault((api_key, version), _Tally())

    # What Prometheus asks

    def text(self) -> bytes:
        """Give all of it in the text format 0.0.4."""
        from prometheus_client import generate_latest

        return generate_latest(self.registry)

    def collect(self) -> Iterator[Metric]:
        """Give what was served, and what is read when it is asked for."""
        yield from self._served()
        yield from _read(self.read())

    def _served(self) -> Iterator[Metric]:
        from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily

        requests = CounterMetricFamily(f"{_PREFIX}_requests", "Requests served.", labels=["api", "version"])
        for (key, version), tally in self._tallies.items():
            requests.add_metric(
                [APIS[key].name, "?" if version == _UNKNOWN else str(version)], tally.requests
            )
        yield requests
        received = CounterMetricFamily(f"{_PREFIX}_received_bytes", "Bytes of requests.", labels=["api"])
        sent = CounterMetricFamily(f"{_PREFIX}_sent_bytes", "Bytes of answers.", labels=["api"])
        doc = "From a request to its answer, waits included."
        seconds = HistogramMetricFamily(f"{_PREFIX}_request_seconds", doc, labels=["api"])
        for key in sorted({key for key, _ in self._tallies}):
            tallies = [tally for (each, _), tally in self._tallies.items() if each == key]
            received.add_metric([APIS[key].name], sum(tally.taken for tally in tallies))
            sent.add_metric([APIS[key].name], sum(tally.given for tally in tallies))
            seconds.add_metric([APIS[key].name], _cumulated(tallies), sum(t.seconds for t in tallies))
        yield from (received, sent, seconds)


def _cumulated(tallies: list[_Tally]) -> list[tuple[str, float]]:
    """Give the buckets as Prometheus wants them: each holds all that were quicker."""
    counts = [sum(each) for each in zip(*(tally.buckets for tally in tallies), strict=True)]
    edges = [str(edge) for edge in _SECONDS] + ["+Inf"]
    return list(zip(edges, accumulate(counts), strict=True))


def _read(now: Reading) -> Iterator[Metric]:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily

    yield InfoMetricFamily(f"{_PREFIX}_build", "What runs here.", value={"version": __version__})
    gauges = {
        "connections": ("Open connections.", now.connections),
        "requests_under_way": ("Requests without an answer yet.", now.requests_under_way),
        "bytes_under_way": ("Their bytes.", now.bytes_under_way),
        "budget_used_ratio": ("Part of the fullest budget that is in use.", now.budget_used),
    }
    for name, (doc, value) in gauges.items():
        yield GaugeMetricFamily(f"{_PREFIX}_{name}", doc, value=value)
    name, doc = f"{_PREFIX}_pulsar_reconnects", "Producers and readers attached to Pulsar again."
    yield CounterMetricFamily(name, doc, value=now.reconnects)
    offsets = CounterMetricFamily(f"{_PREFIX}_offsets", "Offsets of produced batches.", labels=["how"])
    offsets.add_metric(["counted"], now.offsets_counted)
    offsets.add_metric(["learnt"], now.offsets_learnt)
    yield offsets
    bad = CounterMetricFamily(f"{_PREFIX}_undecodable", "Entries that are no records.", labels=["reason"])
    for reason, count in now.undecodable.items():
        bad.add_metric([reason], count)
    yield bad
