"""Options as librdkafka names them, and secrets that stay secret."""

from __future__ import annotations

import pickle
import subprocess
import sys

import pytest

from penstock.brokers.kafka_raw.address import Address, parse_addresses
from penstock.brokers.kafka_raw.settings import Settings
from penstock.brokers.kafka_raw.tls import tls_context
from penstock.errors import ConfigError

LOGIN = {
    "bootstrap.servers": "a:1,b:2",
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "SCRAM-SHA-512",
    "sasl.username": "me",
    "sasl.password": "hunter2",
    "ssl.key.password": "hunter3",
}


def test_options_become_settings() -> None:
    settings = Settings.of(LOGIN, deadline=5.0)
    assert settings.bootstrap == (Address("a", 1), Address("b", 2))
    assert (settings.tls, settings.mechanism, settings.deadline) == (True, "SCRAM-SHA-512", 5.0)


def test_secrets_are_not_shown_and_travel() -> None:
    settings = Settings.of(LOGIN)
    assert "hunter" not in repr(settings) + str(settings)
    assert pickle.loads(pickle.dumps(settings)).password == "hunter2"


@pytest.mark.parametrize(
    "change",
    [
        {"sasl.mechanism": "OAUTHBEARER"},
        {"sasl.mechanism": "GSSAPI"},
        {"security.protocol": "TELNET"},
        {"no.such.option": "1"},
        {"bootstrap.servers": "a:b"},
        {"bootstrap.servers": "user:hunter2@host:1"},
        {"bootstrap.servers": ""},
    ],
)
def test_what_cannot_be_used_is_refused_by_name(change: dict[str, str]) -> None:
    with pytest.raises(ConfigError) as caught:
        Settings.of(LOGIN | change)
    assert "hunter2" not in str(caught.value)


def test_a_login_needs_a_name_and_a_password() -> None:
    with pytest.raises(ConfigError, match="username and a password"):
        Settings.of({"bootstrap.servers": "a", "sasl.mechanism": "PLAIN"})


def test_files_that_cannot_be_loaded_are_named() -> None:
    options = {"bootstrap.servers": "a", "security.protocol": "SSL", "ssl.ca.location": "no-such-ca.pem"}
    with pytest.raises(ConfigError) as caught:
        tls_context(Settings.of(options))
    assert "no-such-ca.pem" in str(caught.value)


def test_addresses_of_every_form() -> None:
    assert parse_addresses("h, [::1]:1") == (Address("h", 9092), Address("::1", 1))


def test_the_drivers_side_loads_no_kernel() -> None:
    modules = ("cluster", "topic_offsets", "group_offsets", "fetcher")
    names = ", ".join(f"penstock.brokers.kafka_raw.{module}" for module in modules)
    program = f"import sys, {names}; print('numba' in sys.modules, 'kio' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]
