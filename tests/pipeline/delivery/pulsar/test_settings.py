"""How a Pulsar is reached: what the contract and the context say, carried to a worker."""

from __future__ import annotations

import pickle
import secrets
from pathlib import Path

import pytest
from pulsar_rows import batch_of, values_in

from penstock.config import Secret, Security
from penstock.contract.credentials import Connection
from penstock.embedded.pulsar import Pulsar
from penstock.errors import PulsarDenied
from penstock.pipeline.delivery.pulsar.cluster import PulsarCluster, PulsarSettings
from penstock.pipeline.delivery.pulsar.producer_names import PulsarTarget, SinkSource
from penstock.pipeline.delivery.pulsar.sink import PulsarSink


def test_settings_are_taken_from_a_connection_and_hide_secrets(tmp_path: Path) -> None:
    security = Security(token=Secret("t0ken"), ca_file=tmp_path / "ca", key_password=Secret("pw"))
    connection = Connection(address="pulsar+ssl://a:6651", admin="https://a:8443", security=security)
    settings = PulsarSettings.of(connection)
    assert settings == pickle.loads(pickle.dumps(settings))
    assert (settings.service_url, settings.admin_url) == ("pulsar+ssl://a:6651", "https://a:8443")
    assert (settings.token, settings.key_password) == ("t0ken", "pw")
    assert settings.ca_file == str(tmp_path / "ca") and settings.cert_file is None
    assert "t0ken" not in repr(settings) and "pw" not in repr(settings)


@pytest.mark.server
def test_a_secured_broker(secured_pulsar: Pulsar) -> None:
    def connection(token: str) -> Connection:
        security = Security(token=Secret(token), ca_file=secured_pulsar.ca_file)
        return Connection(
            address=secured_pulsar.service_url, admin=secured_pulsar.admin_url, tls=True, security=security
        )

    topic = f"persistent://public/default/t-{secrets.token_hex(6)}"
    source = SinkSource(run="r", topic="in", incarnation="", partition=0, first=0)
    with PulsarCluster(PulsarSettings.of(connection(secured_pulsar.token()))) as cluster:
        cluster.call(cluster.admin.create_topic(topic))
        sink = PulsarSink(cluster, [PulsarTarget(topic=topic, partitions=0)], source)
        sink.put(batch_of([b"a", b"b"], 0))
        sink.commit({})
        sink.close()
        assert values_in(cluster, topic) == [b"a", b"b"]
    settings = PulsarSettings.of(connection(secured_pulsar.token("nobody")))
    with PulsarCluster(settings) as cluster, pytest.raises(PulsarDenied):
        values_in(cluster, topic)
