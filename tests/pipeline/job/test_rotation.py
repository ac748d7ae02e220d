"""A password that is changed on the broker and in its file while programs run: all of them go on."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from standalone import Standalone

from penstock.embedded.kafka import Kafka
from penstock.record import KafkaRecord

pytestmark = [pytest.mark.server, pytest.mark.slow]

Make = Callable[..., Any]
USER = "worker"
SECONDS = 120.0


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    """A broker that may be restarted, with a user of our own who may do everything."""
    users = {"super.users": f"User:admin;User:ANONYMOUS;User:{USER}"}
    with Kafka(data=tmp_path_factory.mktemp("kafka"), secured=True, settings=users) as kafka:
        yield kafka


def set_password(kafka: Kafka, password: str) -> None:
    from confluent_kafka.admin import (
        AdminClient,
        ScramCredentialInfo,
        ScramMechanism,
        UserScramCredentialUpsertion,
    )

    admin = AdminClient({**kafka.client_options(), "log_level": "0"})
    how = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
    change = UserScramCredentialUpsertion(USER, how, password.encode())
    for future in admin.alter_user_scram_credentials([change]).values():
        future.result(30)


def record(number: int) -> KafkaRecord:
    headers = {"specversion": "1.0", "id": f"e-{number}", "source": "/s", "type": "t"}
    return KafkaRecord(
        value=b"{}", headers=tuple((f"ce_{name}", text.encode()) for name, text in headers.items())
    )


def until(look: Callable[[], object], running: Any, seconds: float = SECONDS) -> None:
    """Wait for something that a program brings about."""
    end = time.monotonic() + seconds
    while not look():
        assert running.process.poll() is None, running.told()
        assert time.monotonic() < end, running.told()
        time.sleep(0.2)


@pytest.mark.parametrize("engine", ["loop", pytest.param("spark", marks=pytest.mark.soak)])
def test_a_job_goes_on_after_its_password_was_changed(
    engine: str, project: Make, broker: Kafka, tmp_path: Path
) -> None:
    goes_on(("--engine", engine), project, broker, tmp_path / "password")


@pytest.mark.soak
@pytest.mark.timeout(580)
def test_a_job_on_a_cluster_goes_on_after_its_password_was_changed(
    project: Make, broker: Kafka, tmp_path: Path
) -> None:
    with Standalone(tmp_path, workers=1) as cluster:
        on_cluster = ("--master", cluster.address, "--worker-python", sys.executable)
        goes_on(on_cluster, project, broker, tmp_path / "password")


def goes_on(words: tuple[str, ...], project: Make, broker: Kafka, file: Path) -> None:
    """Run a job, change the password of its user on the broker and then in its file: it goes on."""
    set_password(broker, "first")
    file.write_text("first\n")
    login = {"username": USER, "password": f"${{file:{file}}}"}
    shop = project(servers={"kafka": broker}, security=login).create().write({"check": "none"})
    shop.produce([record(1)])
    running = shop.spawn("run", *words, SPARK_LOCAL_IP="127.0.0.1")
    until(lambda: len(shop.read("out")) == 1, running)

    set_password(broker, "second")
    broker.stop()
    broker.start()
    # The file is behind the broker: what connects now is refused, and says so.
    running.until("refuses a password that worked before|did not accept our credentials", seconds=SECONDS)
    file.write_text("second\n")
    shop.produce([record(2)])
    until(lambda: len(shop.read("out")) == 2, running)
    running.process.terminate()
    assert running.ended(60) == 0, running.told()


def test_a_tail_goes_on_after_its_password_was_changed(project: Make, broker: Kafka, tmp_path: Path) -> None:
    file = tmp_path / "password"
    set_password(broker, "first")
    file.write_text("first\n")
    login = {"username": USER, "password": f"${{file:{file}}}"}
    shop = project(servers={"kafka": broker}, security=login).create().write()
    shop.produce([record(1)])
    running = shop.spawn("tail", "in", "--from", "beginning")
    until(lambda: "e-1" in running.stdout.read_text(), running)

    set_password(broker, "second")
    file.write_text("second\n")
    broker.stop()
    broker.start()
    shop.produce([record(2)])
    until(lambda: "e-2" in running.stdout.read_text(), running)
    assert running.process.poll() is None, running.told()
