"""Jobs whose checkpoint is in an HDFS with Kerberos: by keytab, by ticket, and without a login."""

from __future__ import annotations

import socket
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from penstock.events import CloudEvent
from penstock.events.bindings.kafka import KafkaBinding
from penstock.record import KafkaRecord

if TYPE_CHECKING:
    from kdc import Kdc
    from mini_cluster import MiniCluster

pytestmark = [pytest.mark.server, pytest.mark.slow, pytest.mark.soak, pytest.mark.timeout(580)]

Make = Callable[..., Any]
SOON_SECONDS = 60.0
"""For a job that is refused: the start of Java and of Spark's context on a busy machine are most of it."""


@pytest.fixture(scope="module")
def secure_hdfs(tmp_path_factory: pytest.TempPathFactory, kdc: Kdc) -> Iterator[MiniCluster]:
    """A NameNode with one DataNode that know nobody without a ticket."""
    from mini_cluster import MiniCluster

    with MiniCluster(tmp_path_factory.mktemp("secure"), kdc=kdc) as cluster:
        yield cluster


@pytest.fixture
def shop(project: Make, secure_hdfs: MiniCluster) -> Any:
    """A project whose checkpoint is below the home of the user penstock."""
    checkpoint = f"{secure_hdfs.address}/user/penstock/{uuid.uuid4().hex[:8]}"
    return project().create(partitions=2).write(checkpoint=checkpoint)


def record(number: int) -> KafkaRecord:
    event = CloudEvent({"id": f"e-{number}", "source": "/s", "type": "t"}, b"x")
    return KafkaBinding().encode(event)


def ids(shop: Any) -> Counter[str]:
    return Counter(str(KafkaBinding().decode(each).get("id")) for each in shop.read("out"))


def expected(count: int) -> Counter[str]:
    return Counter(f"e-{number}" for number in range(count))


def run(shop: Any, kdc: Kdc, *words: str, java_option: str | None = None, **environment: str) -> Any:
    """Run the job until it ends. Its Java knows the realm; nobody is logged in but by what is given here."""
    options = ("--conf", f"spark.driver.extraJavaOptions={java_option or kdc.java_option}", *words)
    environment = {"KRB5CCNAME": str(shop.folder / "none"), **environment}
    running = shop.spawn("run", "--once", "--engine", "spark", *options, **environment)
    running.code = running.ended()
    return running


def keytab_options(kdc: Kdc) -> tuple[str, ...]:
    settings = {"spark.kerberos.principal": kdc.principal, "spark.kerberos.keytab": str(kdc.keytab)}
    return tuple(word for key, value in settings.items() for word in ("--conf", f"{key}={value}"))


@pytest.mark.parametrize("login", ["keytab", "ticket"])
def test_a_job_that_is_logged_in_runs_and_goes_on(
    shop: Any, kdc: Kdc, secure_hdfs: MiniCluster, login: str
) -> None:
    environment = {"HADOOP_CONF_DIR": str(secure_hdfs.configuration)}
    words = keytab_options(kdc) if login == "keytab" else ()
    if login == "ticket":
        environment["KRB5CCNAME"] = str(kdc.ticket_cache)
    for count in (10, 15):
        shop.produce(map(record, range(count - 5 if count > 10 else 0, count)))
        running = run(shop, kdc, *words, **environment)
        assert running.code == 0, running.told()
        assert ids(shop) == expected(count)
    assert not (shop.folder / ".penstock").exists()


@pytest.mark.parametrize("configured", [True, False], ids=["configured", "unconfigured"])
def test_a_job_without_a_login_is_refused(
    shop: Any, kdc: Kdc, secure_hdfs: MiniCluster, configured: bool
) -> None:
    """Without HADOOP_CONF_DIR it does not even know that the file system wants Kerberos."""
    shop.produce([record(0)])
    environment = {"HADOOP_CONF_DIR": str(secure_hdfs.configuration)} if configured else {}
    began = time.monotonic()
    running = run(shop, kdc, **environment)
    seconds = time.monotonic() - began
    said = running.told()
    assert running.code == 1, said
    assert "the file system of the checkpoint does not accept the credentials of this job" in said
    assert "log in (kinit), or give Spark the principal and keytab" in said
    assert "Traceback" not in said and "\tat " not in said, said
    assert seconds < SOON_SECONDS, said
    assert ids(shop) == Counter()


@pytest.mark.parametrize("wrong", ["keytab", "principal", "missing"])
def test_a_keytab_that_does_not_fit_is_told(
    shop: Any, kdc: Kdc, secure_hdfs: MiniCluster, wrong: str
) -> None:
    """Spark logs in before anything else, and ends with a traceback if it cannot."""
    keytab = {"keytab": kdc.folder / "HTTP.keytab", "missing": kdc.folder / "none"}.get(wrong, kdc.keytab)
    principal = f"nobody@{kdc.realm}" if wrong == "principal" else kdc.principal
    words = ("--conf", f"spark.kerberos.principal={principal}", "--conf", f"spark.kerberos.keytab={keytab}")
    running = run(shop, kdc, *words, HADOOP_CONF_DIR=str(secure_hdfs.configuration))
    said = running.told()
    assert running.code == 1, said
    assert "Spark could not log in by Kerberos" in said
    assert "klist -kt" in said and str(keytab) in said
    assert "Traceback" not in said and "\tat " not in said, said


def test_a_kdc_that_takes_connections_and_keeps_silent_is_told(
    shop: Any, kdc: Kdc, secure_hdfs: MiniCluster, tmp_path: Path
) -> None:
    configuration = tmp_path / "krb5.conf"
    with socket.create_server(("127.0.0.1", 0)) as silent:
        configuration.write_text(
            f"[libdefaults]\ndefault_realm = {kdc.realm}\nudp_preference_limit = 1\nkdc_timeout = 2000\n"
            f"[realms]\n{kdc.realm} = {{\n  kdc = 127.0.0.1:{silent.getsockname()[1]}\n}}\n"
        )
        running = run(
            shop,
            kdc,
            *keytab_options(kdc),
            java_option=f"-Djava.security.krb5.conf={configuration}",
            HADOOP_CONF_DIR=str(secure_hdfs.configuration),
        )
    said = running.told()
    assert running.code == 1, said
    assert "the key distribution center of Kerberos does not answer" in said
    assert "Traceback" not in said and "\tat " not in said, said
