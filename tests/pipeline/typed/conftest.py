"""A shop whose orders come as Avro, JSON and plain records; its contract is made for topics of their own."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from penstock.contract import Contract, ResolvedOperation, load, resolve

ORDER_AVRO: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "namespace": "com.shop",
    "fields": [
        {"name": "order", "type": "string"},
        {"name": "total", "type": "double"},
        {"name": "note", "type": ["null", "string"], "default": None},
    ],
}
ORDER_JSON: dict[str, Any] = {
    "type": "object",
    "required": ["order", "total"],
    "properties": {"order": {"type": "string"}, "total": {"type": "number", "minimum": 0}},
}
TYPE = "com.shop.order"


def avro_message(location: str | None, encoding: str | None = None, **more: Any) -> dict[str, Any]:
    binding = {"schemaIdLocation": location, "schemaIdPayloadEncoding": encoding, "bindingVersion": "0.5.0"}
    return {
        "contentType": "application/avro",
        "x-penstock-type": TYPE,
        "payload": {"schemaFormat": "application/vnd.apache.avro;version=1.9.0", "schema": ORDER_AVRO},
        "bindings": {"kafka": {name: value for name, value in binding.items() if value}},
        **more,
    }


def json_message(**more: Any) -> dict[str, Any]:
    return {
        "contentType": "application/json",
        "x-penstock-type": TYPE,
        "payload": ORDER_JSON,
        "bindings": {"kafka": {"key": {"type": "string", "minLength": 2}, "bindingVersion": "0.5.0"}},
        **more,
    }


CHANNELS: dict[str, dict[str, dict[str, Any]]] = {
    "avro": {"order": avro_message("payload", "4")},
    "wide": {"order": avro_message("payload", "apicurio-new")},
    "eight": {"order": avro_message("payload", "8")},
    "legacy": {"order": avro_message("payload", "apicurio-legacy")},
    "told": {"order": avro_message("payload", "apicurio-new", **{"x-penstock-schema-id-bytes": 4})},
    "none": {"order": avro_message("payload", "4", **{"x-penstock-schema-id-bytes": 0})},
    "header": {"order": avro_message("header")},
    "bare": {"order": avro_message(None)},
    "json": {"order": json_message()},
    "framed": {
        "order": json_message(
            bindings={
                "kafka": {
                    "schemaIdLocation": "payload",
                    "schemaIdPayloadEncoding": "4",
                    "bindingVersion": "0.5.0",
                }
            }
        )
    },
    "plain": {"order": {"contentType": "application/json", "payload": ORDER_JSON}},
    "other": {"order": {"contentType": "application/json", "payload": ORDER_JSON}},
    "structured": {
        "order": {
            "contentType": "application/cloudevents+json",
            "x-penstock-type": TYPE,
            "payload": {"type": "object", "properties": {"data": ORDER_JSON}},
        }
    },
    "format": {"order": {"contentType": "application/cloudevents+avro", "x-penstock-type": TYPE}},
    "proto": {
        "order": avro_message(
            "payload",
            "4",
            payload={
                "schemaFormat": "application/vnd.google.protobuf;version=3",
                "schema": 'syntax = "proto3"; message Order { string order = 1; }',
            },
        )
    },
    "many": {
        "order": avro_message("payload", "4"),
        "parcel": avro_message(
            "payload",
            "4",
            **{"x-penstock-type": "com.shop.parcel"},
            payload={
                "schemaFormat": "application/vnd.apache.avro;version=1.9.0",
                "schema": {
                    "type": "record",
                    "name": "Parcel",
                    "namespace": "com.shop",
                    "fields": [{"name": "parcel", "type": "string"}],
                },
            },
        ),
    },
    "unknown": {"any": {}},
    "dead": {"any": {"x-penstock-type": "io.penstock.deadletter"}},
}


def contract_of(prefix: str = "", vendor: str = "apicurio") -> dict[str, Any]:
    registry = {
        "schemaRegistryUrl": "http://localhost:8081/apis/ccompat/v7",
        "schemaRegistryVendor": vendor,
        "bindingVersion": "0.5.0",
    }
    dead = {"x-penstock-dead-letter": {"$ref": "#/channels/dead"}}
    return {
        "asyncapi": "3.0.0",
        "info": {"title": "shop", "version": "1.0.0"},
        "servers": {"kafka": {"host": "unused:9092", "protocol": "kafka", "bindings": {"kafka": registry}}},
        "channels": {
            name: {"address": f"{prefix}{name}", "messages": messages, **(dead if name != "dead" else {})}
            for name, messages in copy.deepcopy(CHANNELS).items()
        },
        "operations": {
            f"{verb}{name.title()}": {"action": action, "channel": {"$ref": f"#/channels/{name}"}}
            for name in CHANNELS
            for verb, action in (("on", "receive"), ("to", "send"))
        },
    }


_read: dict[tuple[str, str], Contract] = {}
"""Contracts that were read before, by prefix and vendor: they never change."""


@dataclass
class Shop:
    """A folder with the contract."""

    folder: Path
    prefix: str = ""

    def operation(self, name: str, vendor: str = "apicurio") -> ResolvedOperation:
        return resolve(self.contract(vendor), name)

    def operation_with_key(self, name: str, key: Any) -> ResolvedOperation:
        """Give an operation whose message has another key; there is no registry."""
        written = contract_of(self.prefix)
        del written["servers"]["kafka"]["bindings"]
        channel = name.removeprefix("on").lower()
        message = written["channels"][channel]["messages"]["order"]
        written["channels"] = {channel: {"address": channel, "messages": {"order": message}}}
        written["operations"] = {name: written["operations"][name]}
        message["bindings"] = {"kafka": {"key": key, "bindingVersion": "0.5.0"}}
        path = self.folder / "keyed.yaml"
        path.write_text(json.dumps(written), encoding="utf-8")
        return resolve(load(path), name)

    def contract(self, vendor: str = "apicurio") -> Contract:
        if (self.prefix, vendor) not in _read:
            _read[self.prefix, vendor] = load(self.write(vendor))
        return _read[self.prefix, vendor]

    def write(self, vendor: str = "apicurio") -> Path:
        path = self.folder / "asyncapi.yaml"
        path.write_text(json.dumps(contract_of(self.prefix, vendor)), encoding="utf-8")
        return path

    def pipeline(self, routes: Mapping[str, Any], **more: Any) -> Path:
        self.write()
        path = self.folder / "pipeline.yaml"
        path.write_text(json.dumps({"routes": routes, **more}), encoding="utf-8")
        return path


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path)
