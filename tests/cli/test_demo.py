"""The demo: orders have the fate that is said, the account tells what is wrong, and the whole runs."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import psutil
import pytest

from penstock.cli.demo.account import _channel
from penstock.cli.demo.orders import Fate, number_of, number_of_id, orders
from penstock.cli.demo.stages import Stages, installation
from penstock.errors import EventError
from penstock.events.bindings.kafka import KafkaBinding
from penstock.testing import run_route

SHOP = Path(__file__).parents[2] / "examples" / "shop"


def test_orders_have_a_known_fate() -> None:
    made = list(orders(2000, "orders.placed"))
    assert Counter(order.fate for order in made) == {Fate.LARGE: 977, Fate.SMALL: 998, Fate.DEAD: 25}
    for order in made:
        assert number_of(order.record.headers) == order.number
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
    channel = _channel("orders.large", Fate.LARGE, {1, 2}, found, began)
    assert (channel.missing, channel.unexpected, channel.duplicates) == (1, 2, 1)
    assert not channel.right
    fine = _channel("orders.large", Fate.LARGE, {1, 2}, iter([(1, 1500), (2, 1700)]), began)
    assert fine.right
    assert (fine.p50, fine.found) == (600.0, 2)


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
def test_the_demo_accounts_for_every_order() -> None:
    command = [sys.executable, "-m", "penstock.cli", "demo", "--orders", "2000", "-o", "json"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=380, check=False)
    assert result.returncode == 0, result.stderr
    rows = {row["channel"]: row for row in json.loads(result.stdout)}
    assert rows["orders.placed"]["in"] == 2000
    assert (rows["orders.large"]["out"], rows["orders.dead"]["dead"]) == (977, 25)
    assert rows["shipments (pulsar)"]["out"] == 998
    assert [row["missing"] for row in rows.values()] == [0, 0, 0, 0]
    assert "every event is accounted for: 2000 orders = 977 large + 25 dead + 998 small" in result.stderr
    # The lag of the group, by the Kafka protocol, beside what Pulsar counts for its cursor.
    half, whole = re.findall(r"(\d+) read, lag (\d+); Pulsar's backlog of it: (\d+) messages", result.stderr)
    read, lag, backlog = map(int, half)
    assert (read + lag, backlog, 0 < lag < 998) == (998, lag, True)
    assert whole == ("998", "0", "0")


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
