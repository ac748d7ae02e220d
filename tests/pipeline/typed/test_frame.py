"""Where the id of a schema is, and how wide; what a target writes in the place of the old one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from penstock.brokers.schema_registry import Registered, SchemaReference
from penstock.contract.avro_types import AvroImport
from penstock.contract.schema_ids import SchemaId, encode_payload
from penstock.contract.subjects import Registration
from penstock.pipeline.typed.frame import Frame
from penstock.pipeline.typed.schemas import _register_imports

ID = SchemaId(number=7)


@pytest.mark.parametrize("told", [4, 8])
@pytest.mark.parametrize("width", [4, 8])
def test_ids_of_either_width_are_read_where_both_can_be(width: int, told: int) -> None:
    frame = Frame(location="payload", width=told, any_width=True)
    assert frame.read(encode_payload(ID, b"x", width=width), ()) == (ID, b"x")
    # What is written has the width that was told.
    assert frame.write(ID, b"x") == (encode_payload(ID, b"x", width=told), ())


def test_a_width_that_is_sure_is_not_guessed() -> None:
    frame = Frame(location="payload", width=8)
    assert frame.read(encode_payload(ID, b"x", width=8), ()) == (ID, b"x")
    large = SchemaId(number=(1 << 32) + 5)
    assert frame.read(encode_payload(large, b"x", width=8), ()) == (large, b"x")


class Registry:
    """A registry that has had other versions before; notes what was registered with which references."""

    def __init__(self) -> None:
        self.registered: dict[str, tuple[SchemaReference, ...]] = {}

    def register(self, subject: str, kind: str, schema: str, references: Any = ()) -> int:
        self.registered[subject] = tuple(references)
        return 1

    def find(self, subject: str, kind: str, schema: str, references: Any = ()) -> Registered:
        return Registered(version=len(subject), schema_type=kind, schema=schema)


def test_a_schema_refers_to_the_version_that_the_registry_gave_an_import() -> None:
    registry: Any = Registry()
    parts = AvroImport(name="parts", definition={"type": "enum", "name": "parts", "symbols": ["A"]})
    item = replace(parts, name="item", uses=("parts",))
    [found] = _register_imports(registry, Registration(text="{}", uses=("item",), imports=(parts, item)))
    assert found == [SchemaReference(name="item", subject="item", version=4)]
    assert registry.registered == {
        "parts": (),
        "item": (SchemaReference(name="parts", subject="parts", version=5),),
    }
