"""Jobs on a real Kafka that wants OAUTHBEARER: its tokens are fetched, renewed and refused on the way."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from job_project import Project
from token_endpoint import CLIENT, SCOPE, OAuthKafka, TokenEndpoint, serving

from penstock.brokers.kafka_raw import access_token as token_module
from penstock.brokers.kafka_raw.cluster import Cluster
from penstock.brokers.kafka_raw.connection import Connection
from penstock.brokers.kafka_raw.settings import Settings
from penstock.embedded.kafka import Kafka
from penstock.errors import AccessDenied, KafkaDenied, Unreachable
from penstock.pipeline.assembly import sources_of
from penstock.pipeline.job import JobOptions, job_of
from penstock.pipeline.job.choice import guarantee
from penstock.record import KafkaRecord

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.server


@pytest.fixture(scope="module")
def endpoint() -> Iterator[TokenEndpoint]:
    with serving() as made:
        yield made


@pytest.fixture(scope="module")
def broker(endpoint: TokenEndpoint, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OAuthKafka]:
    with OAuthKafka(endpoint, data=tmp_path_factory.mktemp("kafka")) as kafka:
        yield kafka


@pytest.fixture(autouse=True)
def _anew(endpoint: TokenEndpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test begins without a token, and with an endpoint that gives some."""
    monkeypatch.setattr(token_module, "_clients", {})
    endpoint.lifetime, endpoint.answer = 3600.0, None
    endpoint.claims.clear()
    endpoint.issued.clear()
    endpoint.requests.clear()


@pytest.fixture
def connections(monkeypatch: pytest.MonkeyPatch) -> list[Connection]:
    """The connections that are opened."""
    made: list[Connection] = []
    opened = Connection.open

    def note(*args: Any) -> Connection:
        made.append(opened(*args))
        return made[-1]

    monkeypatch.setattr(Connection, "open", note)
    return made


class OAuthProject(Project):
    """A project whose context names the token endpoint; the secret is in a file."""

    def _context(self, server: Kafka) -> dict[str, Any]:
        assert isinstance(server, OAuthKafka)
        (self.folder / "secret").write_text(server.endpoint.secret)
        return {
            "kind": "kafka",
            "address": server.bootstrap,
            "security": {
                "protocol": "sasl_plaintext",
                "mechanism": "oauthbearer",
                "username": CLIENT,
                "password": "${file:secret}",
                "token_url": server.endpoint.url,
            },
        }


@pytest.fixture
def shop(tmp_path: Path, broker: OAuthKafka) -> OAuthProject:
    return OAuthProject(folder=tmp_path, servers={"kafka": broker}).create(partitions=2)


def record(number: int) -> KafkaRecord:
    """Make an event; one in four has no type, which is a dead letter."""
    headers = {"specversion": "1.0", "id": f"e-{number}", "source": "/s", "type": "t"}
    if number % 4 == 3:
        del headers["type"]
    return KafkaRecord(
        value=json.dumps({"total": number}).encode(),
        headers=(
            ("content-type", b"application/json"),
            *((f"ce_{name}", text.encode()) for name, text in headers.items()),
        ),
        partition=number % 2,
    )


def ids(records: list[KafkaRecord]) -> list[str]:
    return sorted(dict(each.headers)["ce_id"].decode() for each in records)


def is_delivered_once(shop: OAuthProject, numbers: range) -> None:
    assert ids(shop.read("out")) == sorted(f"e-{n}" for n in numbers if n % 4 != 3)
    assert len(shop.read("dead")) == sum(n % 4 == 3 for n in numbers)


def test_a_loop_delivers_exactly_once(shop: OAuthProject, endpoint: TokenEndpoint) -> None:
    shop.write({"where": "data.total >= 0"})
    (source,) = sources_of(shop.pipeline())
    assert guarantee(source).startswith("exactly once")
    shop.produce(map(record, range(20)))
    for numbers in (range(20), range(40)):
        with job_of(shop.pipeline(), JobOptions(once=True, engine="loop")) as job:
            job.prepare()
            job.run()
            (totals,) = job.totals.values()
        assert totals.counts["n_in"] == 20
        is_delivered_once(shop, numbers)
        shop.produce(map(record, range(20, 40)))
    # librdkafka has tokens of its own; of the raw client one token is for all connections of both jobs.
    assert len(token_module._clients) == 1


@pytest.mark.slow
def test_tasks_of_spark_deliver_exactly_once(shop: OAuthProject, spark: SparkSession) -> None:
    shop.write({"where": "data.total >= 0"}).produce(map(record, range(20)))
    totals = shop.run(spark, engine="spark")
    assert totals.counts["n_in"] == 20
    is_delivered_once(shop, range(20))


def test_conditions_of_spark_run_in_sql(shop: OAuthProject) -> None:
    # Not run here: Kafka's Java client takes no token without a signature, this broker none with one.
    shop.write({"sql": "data:total::int >= 0"})
    (source,) = sources_of(shop.pipeline())
    assert source.asks_spark
    assert guarantee(source).startswith("exactly once")


def test_a_session_is_renewed_on_its_connection(
    broker: OAuthKafka, endpoint: TokenEndpoint, connections: list[Connection]
) -> None:
    # The broker ends a session with its token.
    endpoint.lifetime = 3.0
    with Cluster(Settings.of(broker.client_options())) as cluster:
        end = time.monotonic() + 60
        while len(endpoint.issued) < 3:
            assert time.monotonic() < end
            cluster.refresh()
            time.sleep(0.05)
    assert len(connections) == 1


def test_a_lost_session_is_a_lost_connection(
    broker: OAuthKafka, endpoint: TokenEndpoint, connections: list[Connection]
) -> None:
    """A session too short to be renewed: the broker hangs up, and the next connection has another token."""
    endpoint.lifetime = 1.5
    with Cluster(Settings.of(broker.client_options())) as cluster:
        end = time.monotonic() + 60
        while len(connections) < 3:
            assert time.monotonic() < end
            cluster.retrying(cluster.refresh)
            time.sleep(0.05)
    assert len(endpoint.issued) >= 3


def test_a_token_that_the_broker_refuses_is_fetched_again_once(
    broker: OAuthKafka, endpoint: TokenEndpoint
) -> None:
    settings = Settings.of(broker.client_options())
    endpoint.claims["scope"] = "another"
    token_module.access_token(settings)
    endpoint.claims["scope"] = SCOPE
    with Cluster(settings) as cluster:
        cluster.refresh()
    assert len(endpoint.issued) == 2


def test_a_broker_that_takes_no_token_of_the_endpoint(broker: OAuthKafka, endpoint: TokenEndpoint) -> None:
    endpoint.claims["scope"] = "another"
    with (
        Cluster(Settings.of(broker.client_options())) as cluster,
        pytest.raises(
            KafkaDenied, match="does not accept the token that its token endpoint has given"
        ) as caught,
    ):
        cluster.partitions("t")
    assert len(endpoint.issued) == 2
    assert "insufficient_scope" in str(caught.value.why)
    assert caught.value.where == broker.bootstrap
    assert not any(token in str(caught.value) for token in endpoint.issued)


def test_a_client_that_the_endpoint_refuses(broker: OAuthKafka, endpoint: TokenEndpoint) -> None:
    options = broker.client_options() | {"sasl.oauthbearer.client.secret": "wrong-hunter3"}
    with Cluster(Settings.of(options)) as cluster, pytest.raises(AccessDenied, match="client id") as caught:
        cluster.partitions("t")
    assert "wrong-hunter3" not in str(caught.value)
    assert len(endpoint.requests) == 1


def test_an_endpoint_that_is_away_is_waited_for(
    broker: OAuthKafka, endpoint: TokenEndpoint, shop: OAuthProject
) -> None:
    endpoint.answers(503, b"")
    with (
        Cluster(Settings.of(broker.client_options(), deadline=0.5, topic_timeout=0.5)) as cluster,
        pytest.raises(Unreachable, match="token endpoint") as caught,
    ):
        cluster.partitions(shop.topic("in"))
    assert caught.value.where == endpoint.url

    def away() -> tuple[int, dict[str, str], bytes]:
        if len(endpoint.requests) >= 3:
            endpoint.answer = None
        return 503, {}, b""

    endpoint.requests.clear()
    endpoint.issued.clear()
    endpoint.answer = away
    with Cluster(Settings.of(broker.client_options())) as cluster:
        assert cluster.partitions(shop.topic("in")) == 2
    assert (len(endpoint.requests), len(endpoint.issued)) == (4, 1)
