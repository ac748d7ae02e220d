"""`resolve`: from an operation of the document to everything a program needs."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from penstock.config import Secret, Security, Server
from penstock.config import load as load_config
from penstock.contract import Contract, load, resolve, validate
from penstock.contract.clusters import admin_address
from penstock.contract.connections import connect_server
from penstock.contract.environments import environments, kafka_channel, pulsar_channel
from penstock.contract.places import place_of
from penstock.contract.schema import SchemaFormat
from penstock.errors import ConfigError, ContractError, UsageError
from penstock.pipeline.typed.form import choose, forms_of

SHOP = Path(__file__).parents[2] / "examples" / "shop" / "asyncapi.yaml"


@pytest.fixture(scope="module")
def shop() -> Contract:
    return load(SHOP)


def contract(text: str) -> Contract:
    result = validate(
        "asyncapi.yaml", raw=f"asyncapi: 3.0.0\ninfo: {{title: t, version: '1'}}\n{text}".encode()
    )
    assert result.contract is not None and result.errors == ()
    return result.contract


def test_receive_from_kafka(shop: Contract) -> None:
    operation = resolve(shop, "onOrderPlaced")
    assert (operation.action, operation.server, operation.protocol) == ("receive", "kafka", "kafka")
    assert (operation.kafka_topic, operation.pulsar_topic) == ("orders.placed", None)
    assert (operation.group_id, operation.client_id) == ("shop-orders", "order-service")
    assert (operation.dead_letter_channel, operation.dead_letter_topic) == ("ordersDead", "orders.dead")
    assert operation.connection.address == "kafka.shop.example:9093"
    assert (operation.connection.protocol, operation.connection.mechanism) == ("SASL_SSL", "SCRAM-SHA-512")
    assert operation.partitions == 12
    placed = operation.message_for("com.shop.order.placed")
    assert placed is not None and placed.name == "orderPlaced"
    assert (placed.codec, placed.cloud_event, placed.mode) == ("json", True, "binary")
    assert placed.key is not None and placed.key.definition["type"] == "string"  # type: ignore[index,call-overload]
    assert operation.message_for("com.shop.something.else") is None


NAMED_LIKE_TYPES = """
servers: {k: {host: 'k:1', protocol: kafka}}
channels:
  c: {address: c, messages: {t.a: {payload: {type: object}}, t.b: {payload: {type: object}}, MORE}}
operations: {o: {action: receive, channel: {$ref: '#/channels/c'}}}
"""
MORE = "t.c: {x-penstock-type: [t.c, t.a]}"


@pytest.mark.parametrize("more", ["", MORE])
def test_the_api_and_the_pipeline_choose_the_same_message(more: str) -> None:
    text = NAMED_LIKE_TYPES.replace(", MORE", f", {more}" if more else "")
    operation = resolve(contract(text), "o")
    forms = forms_of(operation)
    found = {}
    for event_type in ("t.a", "t.b", "t.c", "t.d", "c", "", None):
        message, at = operation.message_for(event_type), choose(forms, event_type, None)
        assert (message.name if message else None) == (None if at is None else forms[at].name)
        found[event_type] = message.name if message else None
    chosen = {"t.c": "t.c", "t.a": "t.c"} if more else {"t.a": "t.a"}
    assert {name: message for name, message in found.items() if message} == {"t.b": "t.b", **chosen}


def test_send_in_structured_mode(shop: Contract) -> None:
    (message,) = resolve(shop, "publishLargeOrder").messages
    assert (message.mode, message.content_type) == ("structured", "application/cloudevents+json")
    assert message.selector.types == ("com.shop.order.placed",)


def test_avro_with_a_registry(shop: Contract) -> None:
    (message,) = resolve(shop, "publishPayment").messages
    assert message.codec == "avro"
    assert message.payload is not None and message.payload.format is SchemaFormat.AVRO
    registry = message.registry
    assert registry is not None
    assert registry.connection.address == "https://registry.shop.example/apis/ccompat/v7"
    assert (registry.vendor, registry.id_location, registry.id_width) == ("apicurio", "payload", 4)
    assert registry.lookup_strategy == "TopicIdStrategy"


@pytest.mark.parametrize(
    ("message", "topic", "expected"),
    [
        (None, None, "TopicNameStrategy"),
        (None, "io.confluent.kafka.serializers.subject.RecordNameStrategy", "RecordNameStrategy"),
        ("TopicRecordNameStrategy", "RecordNameStrategy", "TopicRecordNameStrategy"),
    ],
)
def test_a_message_goes_before_its_topic_in_the_lookup_strategy(
    tmp_path: Path, message: str | None, topic: str | None, expected: str
) -> None:
    registry = {
        "schemaRegistryUrl": "http://r",
        "schemaRegistryVendor": "confluent",
        "bindingVersion": "0.5.0",
    }
    configuration = {"confluent.value.subject.name.strategy": topic} if topic else {}
    lookup = {"schemaLookupStrategy": message} if message else {}
    document = {
        "asyncapi": "3.0.0",
        "info": {"title": "t", "version": "1.0.0"},
        "servers": {"k": {"host": "h:9092", "protocol": "kafka", "bindings": {"kafka": registry}}},
        "channels": {
            "c": {
                "address": "c",
                "messages": {"m": {"bindings": {"kafka": {**lookup, "bindingVersion": "0.5.0"}}}},
                "bindings": {"kafka": {"topicConfiguration": configuration, "bindingVersion": "0.5.0"}},
            }
        },
        "operations": {"o": {"action": "receive", "channel": {"$ref": "#/channels/c"}}},
    }
    path = tmp_path / "asyncapi.yaml"
    path.write_text(json.dumps(document), encoding="utf-8")
    found = resolve(load(path), "o").messages[0].registry
    assert found is not None
    assert found.lookup_strategy == expected


def test_pulsar(shop: Contract) -> None:
    operation = resolve(shop, "publishShipment", environment="dev")
    assert operation.pulsar_topic == "persistent://public/shop/shipments"
    assert operation.topic == operation.pulsar_topic
    assert operation.connection.address == "pulsar+ssl://pulsar.shop.example:6651"
    assert operation.partitions == 2
    assert resolve(shop, "publishAudit").partitions is None


def test_the_value_is_frozen(shop: Contract) -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        resolve(shop, "onOrderPlaced").server = "other"  # type: ignore[misc]


def test_environments_override_key_by_key(shop: Contract) -> None:
    assert environments(shop) == ("dev",)
    channel = shop.channels["ordersPlaced"]
    assert kafka_channel(channel, None) is channel.bindings.kafka
    dev = kafka_channel(channel, "dev")
    assert (dev.partitions, dev.replicas) == (4, 1)
    assert dev.topic_configuration is not None
    assert dev.topic_configuration.settings == {
        "cleanup.policy": "delete",
        "retention.ms": "86400000",
        "min.insync.replicas": "1",
    }
    assert pulsar_channel(shop.channels["shipments"], "dev").ttl == 604800
    with pytest.raises(UsageError, match="no environment 'moon'"):
        resolve(shop, "onOrderPlaced", environment="moon")


def test_the_context_brings_address_and_credentials(isolated_home: Path, shop: Contract) -> None:
    (isolated_home / "penstock.yaml").write_text(
        "contexts:\n  prod:\n    servers:\n      kafka: {kind: kafka, address: 'real:9093', "
        "security: {username: me, password: hunter2}}\n"
        "    registry: {address: 'http://registry:8080', security: {token: sesame}}\n"
        "  dev:\n    servers:\n"
        "      kafka: {address: '127.0.0.1:9092', security: {protocol: plaintext}}\n"
        "      pulsar: {address: 'pulsar://127.0.0.1:6650'}\n"
        "  bare:\n    servers:\n      kafka: {address: '127.0.0.1:9092'}\n"
    )
    config = load_config()
    secured = resolve(shop, "publishPayment", context=config.context("prod"))
    assert secured.connection.address == "real:9093"
    assert (secured.connection.protocol, secured.connection.mechanism) == ("SASL_SSL", "SCRAM-SHA-512")
    registry = secured.messages[0].registry
    assert registry is not None and registry.connection.address == "http://registry:8080"
    assert "hunter2" not in repr(secured) and "sesame" not in repr(secured)
    # The contract says TLS: a context that only names another address does not take it away.
    bare = resolve(shop, "publishPayment", context=config.context("bare"))
    assert (bare.connection.address, bare.connection.protocol) == ("127.0.0.1:9092", "SSL")
    plain = resolve(shop, "publishPayment", context=config.context("dev"))
    assert (plain.connection.address, plain.connection.protocol) == ("127.0.0.1:9092", "PLAINTEXT")
    # An address of Pulsar says by its scheme whether there is TLS.
    pulsar = place_of(shop, "shipments", context=config.context("dev")).connection
    assert (pulsar.address, pulsar.tls, admin_address(pulsar)) == (
        "pulsar://127.0.0.1:6650",
        False,
        "http://127.0.0.1:8080",
    )


@pytest.mark.parametrize(
    ("address", "kind"),
    [
        ("sasl_ssl://real:9093", ""),
        ("ssl://real:9093", ""),
        ("PULSAR://real:9093", ""),
        ("real:9093,ssl://other:9093", ""),
        ("pulsar://real:6650", ""),
        ("pulsar://real:6650", ", kind: kafka"),
        ("real:9093", ", kind: pulsar"),
    ],
)
def test_an_address_of_kafka_does_not_take_tls_away(
    isolated_home: Path, shop: Contract, address: str, kind: str
) -> None:
    (isolated_home / "penstock.yaml").write_text(
        f"contexts: {{prod: {{servers: {{kafka: {{address: '{address}'{kind}, "
        "security: {username: me, password: hunter2}}}}}\n"
    )
    with pytest.raises(ConfigError) as caught:
        resolve(shop, "publishPayment", context=load_config().context("prod"))
    assert "host:port" in (caught.value.next or "")
    assert "penstock.yaml:1" in (caught.value.where or "")


@pytest.mark.parametrize("address", ["b:9093", "ssl://b:9093", "pulsar://b:9093", "b:9093,ssl://c:9093"])
def test_only_an_address_of_pulsar_says_whether_there_is_tls(address: str) -> None:
    security = Security(username="me", password=Secret("hunter2"))
    known = Server(name="k", kind="kafka", address=address, security=security)
    assert connect_server(known, tls=True, mechanism="PLAIN").protocol == "SASL_SSL"


TWO = """
servers: {k: {host: 'k:1', protocol: kafka}, p: {host: 'p:1', protocol: pulsar}}
channels:
  c:
    address: 'orders.{env}'
    parameters: {env: {enum: [dev, prod]}, PLACE}
    bindings: {pulsar: {namespace: n, persistence: non-persistent}}
operations: {o: {action: send, channel: {$ref: '#/channels/c'}}}
""".replace(", PLACE", "")


def test_a_channel_on_two_servers_needs_one(isolated_home: Path) -> None:
    document = contract(TWO)
    with pytest.raises(ContractError, match="2 servers"):
        resolve(document, "o", parameters={"env": "dev"})
    assert resolve(document, "o", server="k", parameters={"env": "dev"}).kafka_topic == "orders.dev"
    pulsar = resolve(document, "o", server="p", parameters={"env": "prod"})
    assert pulsar.pulsar_topic == "non-persistent://public/n/orders.prod"
    with pytest.raises(UsageError, match="not on server 'x'"):
        resolve(document, "o", server="x")
    (isolated_home / "penstock.yaml").write_text(
        "contexts: {only: {servers: {p: {kind: pulsar, address: 'pulsar://h:6650'}}}}\n"
    )
    context = load_config().context("only")
    assert resolve(document, "o", parameters={"env": "dev"}, context=context).server == "p"


def test_parameters_are_needed_and_checked() -> None:
    document = contract(TWO)
    with pytest.raises(UsageError, match="needs a value for env"):
        resolve(document, "o", server="k")
    with pytest.raises(UsageError, match="must be one of dev, prod"):
        resolve(document, "o", server="k", parameters={"env": "moon"})


def test_an_unknown_operation_names_the_known_ones(shop: Contract) -> None:
    with pytest.raises(UsageError) as refused:
        resolve(shop, "onOrder")
    assert "onOrderPlaced" in (refused.value.next or "")


SELECT = """
servers: {{k: {{host: 'k:1', protocol: kafka}}}}
channels: {{c: {{address: a, messages: {{one: {one}, two: {two}}}}}}}
operations: {{o: {{action: receive, channel: {{$ref: '#/channels/c'}}}}}}
"""


def typed(**consts: str) -> str:
    properties = ", ".join(f"ce_{name}: {value}" for name, value in consts.items())
    return f"{{headers: {{type: object, properties: {{{properties}}}}}}}"


@pytest.mark.parametrize(
    ("one", "two", "rules"),
    [
        (typed(type="{const: a}"), typed(type="{const: b}"), []),
        (typed(type="{const: a}"), typed(type="{enum: [b, a]}"), ["PK265"]),
        (typed(type="{const: a}"), "{x-penstock-type: b}", []),
        (typed(type="{const: a}"), "{x-penstock-type: [b, a]}", ["PK265"]),
        (
            typed(type="{const: a}", dataschema="{const: v1}"),
            typed(type="{const: a}", dataschema="{const: v2}"),
            [],
        ),
        (typed(type="{const: a}", dataschema="{const: v1}"), typed(type="{const: a}"), ["PK265"]),
        (typed(type="{const: a}"), "{}", ["PK266"]),
        ("{}", "{}", ["PK266"]),
        ("{headers: {allOf: [{properties: {ce_type: {const: a}}}]}}", "{x-penstock-type: a}", ["PK265"]),
    ],
)
def test_two_messages_for_one_event(one: str, two: str, rules: list[str]) -> None:
    text = "asyncapi: 3.0.0\ninfo: {title: t, version: '1'}\n" + SELECT.format(one=one, two=two)
    result = validate("asyncapi.yaml", raw=text.encode())
    assert [finding.rule.id for finding in result.findings] == rules


def test_the_only_message_takes_every_event() -> None:
    document = contract(
        "servers: {k: {host: 'k:1', protocol: kafka}}\nchannels: {c: {address: a, messages: {m: {}}}}\n"
        "operations: {o: {action: receive, channel: {$ref: '#/channels/c'}}}\n"
    )
    message = resolve(document, "o").message_for(None)
    assert message is not None and (message.name, message.cloud_event, message.mode) == ("m", False, None)


@pytest.mark.parametrize(
    ("message", "codec"),
    [
        ("{payload: {type: object}}", "json"),
        ("{contentType: application/json}", "json"),
        ("{contentType: application/vnd.x+json; charset=utf-8}", "json"),
        ("{contentType: text/plain}", "text"),
        ("{contentType: application/octet-stream}", "bytes"),
        ("{contentType: avro/binary}", "bytes"),
        ("{contentType: application/avro}", "avro"),
        ("{contentType: application/x-protobuf}", "protobuf"),
        (
            "{payload: {schemaFormat: 'application/vnd.google.protobuf;version=3', schema: 'message A {}'}}",
            "protobuf",
        ),
        ("{payload: {schemaFormat: 'application/vnd.apache.avro;version=1.9.0', schema: string}}", "avro"),
        ("{}", "bytes"),
    ],
)
def test_codecs(message: str, codec: str) -> None:
    document = contract(
        f"servers: {{k: {{host: 'k:1', protocol: kafka}}}}\n"
        f"channels: {{c: {{address: a, messages: {{m: {message}}}}}}}\n"
        "operations: {o: {action: receive, channel: {$ref: '#/channels/c'}}}\n"
    )
    assert resolve(document, "o").messages[0].codec == codec


def test_messages_none_all_or_some() -> None:
    base = (
        "servers: {k: {host: 'k:1', protocol: kafka}}\n"
        "channels: {c: {address: a, messages: {m: {x-penstock-type: m}, n: {x-penstock-type: n}}}}\n"
    )
    for said, expected in (
        ("", ["m", "n"]),
        (", messages: []", []),
        (", messages: [{$ref: '#/channels/c/messages/n'}]", ["n"]),
    ):
        document = contract(
            f"{base}operations: {{o: {{action: send, channel: {{$ref: '#/channels/c'}}{said}}}}}\n"
        )
        assert [message.name for message in resolve(document, "o").messages] == expected


def test_the_fingerprint_follows_every_file(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("address: a\n")
    (tmp_path / "asyncapi.yaml").write_text(
        "asyncapi: 3.0.0\ninfo: {title: t, version: '1'}\nchannels: {c: {$ref: 'c.yaml'}}\n"
    )
    before = load(tmp_path / "asyncapi.yaml").fingerprint
    assert load(tmp_path / "asyncapi.yaml").fingerprint == before
    (tmp_path / "c.yaml").write_text("address: b\n")
    assert load(tmp_path / "asyncapi.yaml").fingerprint != before
