"""The demo: orders have the fate that is said, the account tells what is wrong, and the whole runs."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import uuid
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from penstock.cli import output
from penstock.cli.demo.account import Account, channel
from penstock.cli.demo.command import _show
from penstock.cli.demo.group import Standing
from penstock.cli.demo.orders import Fate, fate_of, number_of, number_of_id, orders, place
from penstock.cli.demo.stages import Stages, installation
from penstock.embedded.kafka import Kafka
from penstock.errors import ClusterError, EventError
from penstock.events.bindings.kafka import KafkaBinding
from penstock.testing import run_route

SHOP = Path(__file__).parents[2] / "examples" / "shop"


def test_orders_have_a_known_fate() -> None:
    made = list(orders(2000, "orders.placed"))
    assert Counter(order.fate for order in made) == {Fate.LARGE: 977, Fate.SMALL: 998, Fate.DEAD: 25}
    for order in made:
        assert number_of(order.record.headers) == order.number
        assert fate_of(order.number) is order.fate
        if order.fate is not Fate.DEAD:
            data = KafkaBinding().decode(order.record).json()
            assert (data["total"] >= 100) == (order.fate is Fate.LARGE)


def test_small_orders_are_shipped_on_pulsar() -> None:
    small = next(order for order in orders(10, "orders.placed") if order.fate is Fate.SMALL)
    trial = run_route(SHOP / "both-brokers.yaml", [small.record])
    (sent,) = trial.sent
    assert (sent.channel, sent.record.key) == ("shipments", b"o-%d" % small.number)
    assert sent.event is not None
    assert number_of_id(sent.event.get("causationid")) == small.number
    assert sent.event.json() == {
        "order": f"o-{small.number}",
        "parcel": f"p-o-{small.number}",
        "carrier": "pigeon",
    }


def test_malformed_orders_differ() -> None:
    dead = [order.record for order in orders(80 * 8, "orders.placed") if order.fate is Fate.DEAD]
    said = []
    for record in dead:
        try:
            event = KafkaBinding().decode(record)
            said.append(f"{event.type} {event.json()['lines']}")
        except EventError as exc:
            said.append(exc.what)
    assert len(set(said)) == 8


def test_the_account_tells_what_is_wrong() -> None:
    began = {1: 1000, 2: 1000}
    found = iter([(1, 1500), (1, 1600), (7, 1500), (None, 1500)])
    wrong = channel("orders.large", Fate.LARGE, {1, 2}, found, began)
    assert (wrong.missing, wrong.unexpected, wrong.duplicates) == (1, 2, 1)
    assert not wrong.right
    fine = channel("orders.large", Fate.LARGE, {1, 2}, iter([(1, 1500), (2, 1700)]), began)
    assert fine.right
    assert (fine.p50, fine.found) == (600.0, 2)
    assert fine.rate == pytest.approx(2 / 0.7)


def test_an_order_that_is_there_twice_is_not_accounted_for() -> None:
    twice = channel("orders.large", Fate.LARGE, {1}, iter([(1, 1500), (1, 1500)]), {1: 1000})
    assert (twice.missing, twice.unexpected, twice.duplicates) == (0, 0, 1)
    assert not twice.right


def test_the_table_fits_into_80_columns(capsys: pytest.CaptureFixture[str]) -> None:
    placed = dict.fromkeys(range(100_000), 1000)
    names = ("orders.placed", "orders.large", "orders.dead", "persistent://public/shop/shipments")
    fates = (None, Fate.LARGE, Fate.DEAD, Fate.SMALL)
    found = ((number, 100_000) for number in placed)
    one = channel("", Fate.LARGE, set(placed), found, placed)
    account = Account(
        tuple(replace(one, name=name, fate=fate) for name, fate in zip(names, fates, strict=True))
    )
    standing = Standing(read=100_000, lag=0, messages=0, entries=0)
    assert _show(account, [standing])
    table = capsys.readouterr().out.splitlines()
    assert " ".join(table[0].split()) == "channel expected found missing twice records/s median p99"
    assert " ".join(table[-1].split()) == "shipments (pulsar) 100000 100000 0 0 1010 99.0 s 99.0 s"
    assert max(map(len, table)) <= 80


def test_of_the_table_that_is_shown_meanwhile_nothing_is_left(capsys: pytest.CaptureFixture[str]) -> None:
    for keep, left in ((True, "topic orders.placed, lag 3\n"), (False, "")):
        with output.live_table(("topic", "lag"), keep=keep) as show:
            show([("orders.placed", 3)])
        assert capsys.readouterr().err == left


@pytest.mark.server
def test_an_order_that_the_broker_refuses_is_an_error(kafka: Kafka) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic

    name = f"orders-{uuid.uuid4().hex[:8]}"
    admin = AdminClient(kafka.client_options())
    admin.create_topics([NewTopic(name, 1, 1, config={"max.message.bytes": "100"})])[name].result(30)
    with pytest.raises(ClusterError, match="an order"):
        place(kafka.client_options(), name, 3, lambda: False)


def test_downloads_and_routing_are_no_own_work() -> None:
    stages = Stages({"downloads": 40.0, "install": 12.0})
    for name in ("servers and Spark", "routing"):
        with stages.measured(name):
            pass
    assert stages.told(("downloads", "routing")) == (
        "12.0 s of own work (install 12.0, servers and Spark 0.0); downloads 40.0; routing 0.0"
    )


def test_an_installation_is_counted_once(tmp_path: Path) -> None:
    left = tmp_path / ".seconds"
    left.write_text('{"downloads": 40.5, "install": 12.25}')
    assert installation(left) == {"downloads": 40.5, "install": 12.25}
    assert installation(left) == {}
    assert installation(None) == {}
    left.write_text('{"downloads": "x"}')
    assert installation(left) == {}


@pytest.mark.server
@pytest.mark.slow
@pytest.mark.timeout(400)
def test_the_demo_accounts_for_every_order(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "penstock.cli", "demo", "--orders", "2000", "-o", "json"]
    with (tmp_path / "out").open("w") as out, (tmp_path / "err").open("w") as err:
        demo = subprocess.Popen(command, stdout=out, stderr=err)
        gateways = _gateways_of(demo)
    said = (tmp_path / "err").read_text()
    assert demo.returncode == 0, said
    # The one that a Kafka group reads through; no job starts one for its routes.
    assert len(gateways) == 1
    rows = {row["channel"]: row for row in json.loads((tmp_path / "out").read_text())}
    assert {name: row["found"] for name, row in rows.items()} == {
        "orders.placed": 2000,
        "orders.large": 977,
        "orders.dead": 25,
        "shipments (pulsar)": 998,
    }
    assert [(row["missing"], row["duplicates"]) for row in rows.values()] == [(0, 0)] * 4
    assert all(float(row["records/s"]) > 0 for row in rows.values())
    assert all(rows[name]["latency_p99"].endswith(" s") for name in rows if name != "orders.placed")
    for route in ("large-orders", "shipments"):
        assert f"route {route}: exactly once on pulsar, exactly once on kafka\n" in said
    assert "every event is accounted for: 2000 orders = 977 large + 25 dead + 998 small" in said
    # The lag of the group, by the Kafka protocol, beside what Pulsar counts for its cursor.
    half, whole = re.findall(r"(\d+) read, lag (\d+); Pulsar's backlog of it: (\d+) messages", said)
    read, lag, backlog = map(int, half)
    assert (read + lag, backlog, 0 < lag < 998) == (998, lag, True)
    assert whole == ("998", "0", "0")


def _gateways_of(demo: subprocess.Popen[bytes]) -> set[int]:
    """Wait for the end of a demo; return the processes of gateways among its descendants."""
    found: set[int] = set()
    while demo.poll() is None:
        with suppress(psutil.Error):
            for each in psutil.Process(demo.pid).children(recursive=True):
                with suppress(psutil.Error):
                    if each.cmdline()[1:4] == ["-m", "penstock.cli", "gateway"]:
                        found.add(each.pid)
        time.sleep(0.2)
    return found


@pytest.mark.server
@pytest.mark.slow
@pytest.mark.timeout(200)
@pytest.mark.soak
@pytest.mark.parametrize("moment", ["starting", "contract: "])
def test_ctrl_c_ends_the_demo_soon_and_leaves_nothing(moment: str, tmp_path: Path) -> None:
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    quick = "from penstock.cli import app, output; output.REPORT_SECONDS = 0.5"
    code = f"import sys; {quick}; sys.exit(app.main())"
    command = [sys.executable, "-c", code, "demo", "--orders", "2000"]
    with subprocess.Popen(
        command, env={**os.environ, "TMPDIR": str(temporary)}, stderr=subprocess.PIPE, text=True
    ) as demo:
        assert demo.stderr is not None
        said = [next(line for line in demo.stderr if line.startswith(moment))]
        demo.send_signal(signal.SIGINT)
        began = time.monotonic()
        said += demo.stderr
    assert demo.returncode == 130
    assert time.monotonic() - began < 60
    assert "Traceback" not in "".join(said)
    assert said[-1] == "interrupted\n"
    assert list(temporary.iterdir()) == []
    assert [each.pid for each in psutil.process_iter() if _works_in(each, temporary)] == []


def _works_in(process: psutil.Process, folder: Path) -> bool:
    try:
        return str(folder) in " ".join(process.cmdline())
    except psutil.Error:
        return False
