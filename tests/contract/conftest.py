"""The table of verdicts, and how a row becomes a document."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from penstock.contract import Contract, validate

TABLE = YAML(typ="safe", pure=True).load((Path(__file__).parent / "verdicts.yaml").read_text())
WORDS = {"!null": None, "long": "t" * 250}


def patched(base: Any, patch: Any) -> Any:
    if not isinstance(patch, dict):
        return WORDS.get(patch, patch) if isinstance(patch, str) else patch
    result = dict(base) if isinstance(base, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = patched(result.get(key), value)
    return result


@pytest.fixture(scope="session")
def source_of() -> Callable[[dict[str, Any]], tuple[str, str]]:
    """Give the file name and the text of a row of the table."""

    def make(verdict: dict[str, Any]) -> tuple[str, str]:
        if "text" in verdict:
            return "asyncapi.yaml", verdict["text"]
        return "asyncapi.json", json.dumps(patched(TABLE["base"], verdict["patch"]))

    return make


@pytest.fixture(scope="session")
def contract_of() -> Callable[..., Contract]:
    """Make a contract from channels; its servers are kafka, with a registry, and pulsar."""

    def make(channels: dict[str, Any], **parts: Any) -> Contract:
        document = {
            "asyncapi": "3.0.0",
            "info": {"title": "orders", "version": "1.4.0"},
            "servers": SERVERS,
            "channels": channels,
            **parts,
        }
        result = validate("asyncapi.json", raw=json.dumps(document).encode())
        assert result.contract is not None
        assert [(f.rule.id, f.message) for f in result.errors] == []
        return result.contract

    return make


SERVERS = {
    "kafka": {
        "host": "kafka.example:9092",
        "protocol": "kafka",
        "bindings": {"kafka": {"schemaRegistryUrl": "http://registry.example"}},
    },
    "pulsar": {
        "host": "pulsar.example:6650",
        "protocol": "pulsar",
        "bindings": {"pulsar": {"tenant": "acme"}},
    },
}
