"""The flow of the demo: servers, contract, orders, routes, and a table that accounts for each order."""

from __future__ import annotations

import re
import shutil
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event, Thread
from typing import TYPE_CHECKING, Annotated, Final

import typer

from penstock.cli import output
from penstock.cli.demo.programs import SPARK, STARTING, Programs, started
from penstock.cli.demo.stages import Stages, installation
from penstock.cli.fetching import fetch
from penstock.cli.settings import Format, configuration, current

if TYPE_CHECKING:
    from penstock.cli.demo.account import Account
    from penstock.cli.demo.group import Standing
    from penstock.cli.demo.shop import Shop
    from penstock.embedded.stack import Stack
    from penstock.pipeline.job import Job, Watcher

__all__ = ["command"]

_JARS: Final = ("kafka", "pulsar", "registry")
_SERVERS: Final = ("kafka", "pulsar", "registry", "gateway")
_DOWNLOADS: Final = "downloads"
_ROUTING: Final = "routing"
_ORDERS: Final = 100_000
_KAFKA: Final = {"log.message.timestamp.type": "LogAppendTime"}
"""Latencies are by the clock of the broker: when it has got an order, and what became of it."""
_IDLE: Final = 30.0
"""Seconds without one more order after which the job ends although some are missing: the table tells."""
_MARKS: Final = "penstock.kafka-orders.placed."
_PROMISE: Final = r"(?:exactly|at least) once on [^:;]+"
_BOARD: Final = {"orders": "placed", "large-orders": "large", "shipments": "small", "dead letters": "dead"}
_COLUMNS: Final = (
    "channel",
    "expected",
    "found",
    "missing",
    "duplicates",
    "records/s",
    "latency p50",
    "latency p99",
)
_HEADERS: Final = {"duplicates": "twice", "latency p50": "median", "latency p99": "p99"}
_TOPICS: Final = {
    "placed": "orders.placed",
    "large": "orders.large",
    "dead": "orders.dead",
    "small": "persistent://public/shop/shipments",
}


def command(
    orders: Annotated[int, typer.Option(min=1, max=1_000_000, help="How many orders are placed.")] = _ORDERS,
    stay: Annotated[bool, typer.Option("--stay", help="Keep the servers up until Ctrl-C.")] = False,
    installed: Annotated[
        Path | None, typer.Option(hidden=True, help="Seconds of an installation, to be told with the others.")
    ] = None,
) -> None:
    """Start Kafka, Pulsar, a registry and the gateway, run the shop, and account for every order."""
    from penstock.embedded.artifacts import status
    from penstock.embedded.stack import Stack

    configuration()
    stages = Stages(installation(installed))
    missing = any(there < all_ for there, all_ in map(status, _JARS))
    with stages.measured(_DOWNLOADS if missing else "checking jars"):
        fetch(_JARS)
    stack = Stack(_SERVERS, record_classes=True, kafka_settings=_KAFKA)
    # An archive takes seconds at the end of the first run; those of Kafka and Spark save most later.
    stack.pulsar.records_classes = stack.registry.records_classes = False
    with (
        TemporaryDirectory(prefix="penstock-demo-", ignore_cleanup_errors=True) as name,
        started(stack, Path(name), stages) as programs,
    ):
        folder = Path(name, "shop")
        right = _demo(stack, programs, folder, orders, stages, stay=stay)
        if stay:
            _stay(stack, folder)
    output.talk(f"where the time went: {stages.told(apart=(_DOWNLOADS, _ROUTING))}")
    if not stay:
        again = "make run STAY=1" if installed else "penstock demo --stay"
        output.talk(f"next: {again} keeps the servers up, with commands to try; README.md")
    if not right:
        raise typer.Exit(1)


def _demo(stack: Stack, programs: Programs, folder: Path, count: int, stages: Stages, *, stay: bool) -> bool:
    from penstock.cli.demo.account import account
    from penstock.cli.demo.group import read_in_two_parts
    from penstock.cli.demo.shipments import read_shipments
    from penstock.cli.demo.shop import open_shop

    shop = open_shop(folder, stack)
    with stages.measured("contract"), output.progress("contract: plan and apply"):
        plan = shop.make_topics()
    output.talk(f"contract: {len(plan.steps)} steps applied (topics, namespaces, schemas)")
    with stages.measured(STARTING):
        programs.spark()
    with stages.measured(_ROUTING):
        _route(shop, stack, programs, count)
    programs.end(SPARK, *(() if stay else ("registry",)))
    with stages.measured("reading back"):
        with output.progress("reading every topic back, each with its broker's own client"):
            shipped = read_shipments(stack.pulsar.service_url, _TOPICS["small"])
            found = account(stack.kafka.client_options(), count, _TOPICS, shipped)
            programs.wait_for("gateway")
        programs.end(*(() if stay else ("kafka",)))
        with output.progress("a Kafka group reads the shipments through the gateway"):
            standings = list(read_in_two_parts(stack, _TOPICS["small"]))
    return _show(found, standings)


# The job


def _route(shop: Shop, stack: Stack, programs: Programs, count: int) -> None:
    """Run the routes of the shop while its orders come in, until all are read."""
    from penstock.cli.demo.board import Board, shown
    from penstock.pipeline.compile import load_pipeline
    from penstock.pipeline.job import Job, JobOptions

    pipeline = load_pipeline(shop.pipeline, context=shop.context)
    with Job(pipeline, JobOptions(until_idle=_IDLE)) as job:
        job.prepare()
        _say_promises(job)
        job.watch(_until(count, job))
        board = Board(stack, {route: _TOPICS[name] for route, name in _BOARD.items()}, _MARKS)
        with shown(board), _fed(job, stack.kafka.client_options(), count):
            job.run(programs.spark())


def _say_promises(job: Job) -> None:
    """Say what the delivery of each route is worth; `penstock routes --explain` has the whole sentence."""
    for each in job.plan:
        output.talk(f"route {each.route}: {', '.join(re.findall(_PROMISE, each.guarantee))}")


def _until(total: int, job: Job) -> Watcher:
    """End the job when everything is read."""
    from penstock.pipeline.job import Progress, Watcher

    class Until(Watcher):
        read = 0

        def batch(self, progress: Progress) -> None:
            self.read += progress.counts["n_in"]
            if self.read >= total:
                job.stop()

    return Until()


@contextmanager
def _fed(job: Job, options: dict[str, str], count: int) -> Iterator[None]:
    """Place the orders as soon as the job runs; an order that is not taken ends the job."""
    from penstock.cli.demo.orders import place

    trouble: list[Exception] = []
    over = Event()

    def feed() -> None:
        while not job.running:
            if over.wait(0.05):
                return
        try:
            place(options, _TOPICS["placed"], count, over.is_set)
        except Exception as exc:  # noqa: BLE001 - told by the thread that waits
            trouble.append(exc)
            job.stop()

    feeder = Thread(target=feed, name="penstock-demo-orders", daemon=True)
    feeder.start()
    try:
        yield
    finally:
        over.set()
        feeder.join()
    if trouble:
        raise trouble[0]


# What is shown


def _show(found: Account, standings: Sequence[Standing]) -> bool:
    from penstock.cli.demo.group import GROUP

    names = _HEADERS if current().output is Format.TABLE else {}  # which fit into 80 columns
    output.rows([names.get(each, each) for each in _COLUMNS], list(_rows(found)), current().output)
    placed, large, dead, small = found.channels
    read_all = standings[-1].read == small.found and standings[-1].lag == 0
    right = found.right and read_all and all(standing.right for standing in standings)
    sums = (
        f"{placed.expected} orders = {large.expected} large + {dead.expected} dead + {small.expected} small"
    )
    verdict = "every event is accounted for" if right else "NOT every event is accounted for"
    output.talk(f"{verdict}: {sums}")
    for channel in found.channels:
        if channel.unexpected:
            output.talk(f"{channel.unexpected} records in {channel.name} do not belong there")
    output.talk(f"Kafka group {GROUP} on a topic of Pulsar, through the gateway:")
    for standing in standings:
        output.talk(f"  {standing}")
    return right


def _rows(found: Account) -> Iterator[tuple[object, ...]]:
    for each in found.channels:
        name = f"{each.name.rpartition('/')[2]} (pulsar)" if "://" in each.name else each.name
        rate = "" if each.rate is None else f"{each.rate:.0f}"
        figures = (each.expected, each.found, each.missing, each.duplicates, rate)
        yield name, *figures, _seconds(each.p50), _seconds(each.p99)


def _seconds(millis: float | None) -> str:
    return "" if millis is None else f"{millis / 1000:.1f} s"


def _stay(stack: Stack, folder: Path) -> None:
    """Say what can be tried, and wait for Ctrl-C."""
    output.talk(f"\nthe servers stay up: Kafka {stack.kafka.bootstrap}, Pulsar {stack.pulsar.service_url}")
    output.talk(f"and Pulsar as Kafka at {stack.gateway.bootstrap}")
    output.talk(f"  cd {folder}")
    if shutil.which("penstock") is None:  # of an environment that is not activated
        output.talk(f"  export PATH={Path(sys.executable).parent}:$PATH")
    for line in (
        "penstock dlq list              # why orders died",
        "penstock drift --env dev       # change a topic by hand, and look again",
        "penstock groups                # who reads, on both brokers",
        "penstock run both-brokers.yaml --once    # route what comes next",
    ):
        output.talk(f"  {line}")
    output.talk("Ctrl-C ends them")
    try:
        signal.pause()
    except KeyboardInterrupt:
        output.talk("stopping")
