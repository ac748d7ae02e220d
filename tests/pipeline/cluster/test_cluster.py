"""A pipeline on a real Spark cluster whose machines have neither Penstock nor the user's module installed."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
import time
import uuid
import venv
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from ruamel.yaml import YAML
from standalone import Standalone, environment_of, python_without_penstock, submit

from penstock.brokers.kafka_records import publish, scan
from penstock.events.bindings.kafka import KafkaBinding
from penstock.pipeline.deadletter import TYPE
from penstock.record import KafkaRecord

if TYPE_CHECKING:
    from penstock.embedded.kafka import Kafka

pytestmark = [pytest.mark.server, pytest.mark.slow, pytest.mark.timeout(1800)]

SHOP = Path(__file__).parents[3] / "examples" / "shop"
ORDERS = 400
DEAD_EVERY = 40


@pytest.fixture(scope="module")
def bare_python(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Make a Python that has the libraries of REQUIREMENTS, and no Penstock."""
    return python_without_penstock(tmp_path_factory.mktemp("bare"))


@pytest.fixture(scope="module")
def empty_python(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Make a Python that has nothing but its standard library."""
    folder = tmp_path_factory.mktemp("empty")
    venv.create(folder, with_pip=False, symlinks=True)
    return str(folder / "bin" / "python")


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give the folder of what the workers keep; nothing has been compiled there."""
    return tmp_path_factory.mktemp("cluster")


@pytest.fixture(scope="module")
def standalone(machine: Path) -> Iterator[Standalone]:
    """Run a master and two workers of one core each."""
    with Standalone(machine, workers=2, cores=1) as made:
        yield made


@pytest.fixture
def master(standalone: Standalone) -> str:
    """Give the address of a cluster of two workers."""
    while len(standalone.workers) < 2:
        standalone.add_worker()
    return standalone.address


@pytest.fixture
def prefix() -> str:
    """Name what a test has for itself."""
    return f"cluster-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def project(kafka: Kafka, tmp_path: Path, prefix: str) -> Path:
    """Copy the shop, with topics of its own."""
    from confluent_kafka.admin import AdminClient, NewTopic

    text = (SHOP / "asyncapi.yaml").read_text().replace("address: orders.", f"address: {prefix}.")
    contract, pipeline = (
        YAML(typ="safe").load(each) for each in (text, (SHOP / "pipeline.yaml").read_text())
    )
    _add_a_fused_route(contract, pipeline, prefix)
    pipeline["checkpoint"] = str(tmp_path / "checkpoints")
    for name, document in (("asyncapi", contract), ("pipeline", pipeline)):
        (tmp_path / f"{name}.yaml").write_text(json.dumps(document))
    (tmp_path / "functions.py").write_bytes((SHOP / "functions.py").read_bytes())
    (tmp_path / "penstock.yaml").write_text(
        "contexts:\n  test:\n    servers:\n      kafka: "
        f"{{address: '{kafka.bootstrap}', security: {{protocol: plaintext}}}}\n"
    )
    admin = AdminClient(kafka.client_options())
    topics = [NewTopic(f"{prefix}.{name}", 2, 1) for name in ("placed", "large", "dead", "trail", "copy")]
    for done in admin.create_topics(topics).values():
        done.result(30)
    for topic in (f"{prefix}.placed", f"{prefix}.trail"):
        publish(kafka.client_options(), (_order(number, topic) for number in range(ORDERS)))
    return tmp_path


def _add_a_fused_route(contract: dict[str, Any], pipeline: dict[str, Any], prefix: str) -> None:
    """Add a source that the kernel can do beside the one with a function, which it cannot."""
    message = {"event": {"headers": {"type": "object", "properties": {"ce_id": {"type": "string"}}}}}
    dead = {"x-penstock-dead-letter": {"$ref": "#/channels/ordersDead"}}
    for name, action, more in (("trail", "receive", dead), ("copy", "send", {})):
        servers = [{"$ref": "#/servers/kafka"}]
        contract["channels"][name] = {
            "address": f"{prefix}.{name}",
            "servers": servers,
            "messages": message,
            **more,
        }
        contract["operations"][f"{action}-{name}"] = {
            "action": action,
            "channel": {"$ref": f"#/channels/{name}"},
        }
    pipeline["routes"]["copies"] = {
        "receive": "receive-trail",
        "where": "data.total >= 100",
        "send": "send-copy",
    }


def _order(number: int, topic: str) -> KafkaRecord:
    headers = (
        ("ce_specversion", b"1.0"),
        ("ce_id", b"order-%d" % number),
        ("ce_source", b"/shop"),
        ("ce_type", b"com.shop.order.placed"),
        ("content-type", b"application/json"),
    )
    kept = headers[1:] if number % DEAD_EVERY == 0 else headers
    value = b'{"order":"%d","customer":"c%d","total":%d}' % (number, number % 7, number % 200)
    return KafkaRecord(value=value, key=b"k%d" % number, headers=kept, topic=topic)


@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    "libraries",
    [
        "--libraries",  # 500 MB in 6 000 files, for each executor
        "--no-libraries",
    ],
)
@pytest.mark.soak
def test_the_application_is_all_that_a_machine_with_spark_needs(
    libraries: str,
    kafka: Kafka,
    project: Path,
    prefix: str,
    master: str,
    machine: Path,
    empty_python: str,
    bare_python: str,
) -> None:
    packed = _penstock(project, "package", "--to", "job", "-o", "json", libraries)
    assert packed.returncode == 0, packed.stderr
    line = json.loads(packed.stdout)["submit"]["standalone"].replace("spark://HOST:7077", master)
    python = empty_python if libraries == "--libraries" else bare_python
    words = shlex.split(re.sub(r"python3\.\d+\b", python, line).replace("\\\n", " "))
    result = submit(project, *words[1:], "--once", "-o", "json", "--shadow", "1")
    assert result.returncode == 0, result.stderr
    # spark-submit writes what Python says to both streams into its standard output.
    total = json.loads(result.stdout[result.stdout.index('{\n  "total"') :])["total"]
    assert total["in"] == 2 * ORDERS
    dead = {n for n in range(ORDERS) if n % DEAD_EVERY == 0}
    large = {f"order-{n}" for n in range(ORDERS) if n % 200 >= 100 and n not in dead}
    options = kafka.client_options()
    assert sorted(KafkaBinding().decode(each).id for each in scan(options, f"{prefix}.copy")) == sorted(large)
    # The kernel ran there, beside its shadow, and no worker had to compile one: the archive brought them.
    assert total["shadow"] > 0
    assert "compiled" not in total, total
    assert list((machine / "kernels").glob("*.nbi"))
    written = [KafkaBinding().decode(record) for record in scan(options, f"{prefix}.large")]
    assert sorted(str(event.get("causationid")) for event in written) == sorted(large)
    # What the function added: it ran there, and it came by the archive.
    assert {event.json()["reviewer"] for event in written} == {"clerk"}
    letters = [KafkaBinding().decode(record) for record in scan(options, f"{prefix}.dead")]
    assert [letter.type for letter in letters] == [TYPE] * 2 * len(dead)


def test_a_worker_that_is_killed_costs_nothing_and_repeats_nothing(
    kafka: Kafka, project: Path, prefix: str, standalone: Standalone, master: str, bare_python: str
) -> None:
    pipeline = json.loads((project / "pipeline.yaml").read_text())
    pipeline["routes"] = {"copies": pipeline["routes"]["copies"]}
    (project / "pipeline.yaml").write_text(json.dumps(pipeline))
    words = ("--until-idle", "--idle", "8", "--max-offsets", "20", "--master", master, "--worker-python")
    command = [sys.executable, "-m", "penstock.cli", "run", *words, bare_python]
    said = project / "stderr"
    environment = environment_of(project)
    with said.open("wb") as err:
        job = subprocess.Popen(command, cwd=project, stdout=subprocess.DEVNULL, stderr=err, env=environment)
    try:
        end = time.monotonic() + 900
        while len(re.findall(r"batch \d+ ", said.read_text())) < 3:
            assert job.poll() is None, said.read_text()
            assert time.monotonic() < end, said.read_text()
            time.sleep(0.05)
        standalone.kill_worker()
        assert job.wait(600) == 0, said.read_text()
    finally:
        job.kill()
        job.wait(30)
    assert _copied(kafka, prefix) == _large_orders()


@pytest.mark.soak
def test_a_cluster_without_workers_is_told_and_used_when_it_has_one(
    kafka: Kafka, project: Path, prefix: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    pipeline = json.loads((project / "pipeline.yaml").read_text())
    pipeline["routes"] = {"copies": pipeline["routes"]["copies"]}
    (project / "pipeline.yaml").write_text(json.dumps(pipeline))
    said = project / "stderr"
    with Standalone(tmp_path_factory.mktemp("empty"), workers=0) as empty, said.open("wb") as err:
        words = ("--once", "--master", empty.address, "--worker-python", sys.executable)
        command = [sys.executable, "-m", "penstock.cli", "run", *words]
        environment = environment_of(project)
        job = subprocess.Popen(command, cwd=project, stdout=subprocess.DEVNULL, stderr=err, env=environment)
        try:
            end = time.monotonic() + 900
            while "Spark has had no executor for this job" not in said.read_text():
                assert job.poll() is None, said.read_text()
                assert time.monotonic() < end, said.read_text()
                time.sleep(0.2)
            empty.add_worker()
            assert job.wait(600) == 0, said.read_text()
        finally:
            job.kill()
            job.wait(30)
    assert "Spark has executors again after" in said.read_text()
    assert _copied(kafka, prefix) == _large_orders()


def _copied(kafka: Kafka, prefix: str) -> list[str]:
    """The ids of what the route has written, each as often as it is there."""
    found = scan(kafka.client_options(), f"{prefix}.copy")
    return sorted(KafkaBinding().decode(each).id for each in found)


def _large_orders() -> list[str]:
    """The ids of those that the route takes and that are no dead letters."""
    numbers = (n for n in range(ORDERS) if n % 200 >= 100 and n % DEAD_EVERY)
    return sorted(f"order-{n}" for n in numbers)


def _penstock(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "penstock.cli", *words]
    return subprocess.run(
        command,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env=environment_of(folder),
    )
