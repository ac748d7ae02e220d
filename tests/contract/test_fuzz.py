"""Fuzz the loader: the shop's contract with random wounds, for PENSTOCK_FUZZ_SECONDS (60 by default)."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path
from time import monotonic

import pytest

from penstock.contract import validate

SHOP = (Path(__file__).parents[2] / "examples" / "shop" / "asyncapi.yaml").read_bytes()
NASTY = (
    *(b"&a ", b"*a", b"<<: *a", b"!!int ", b"{$ref: '#'}", b"[", b"}", b"\t", b"\xff"),
    *(b"~", b"9" * 30, b"'", b"- ", b": ", b"\n---\n"),
)
Wound = Callable[[random.Random, list[bytes]], None]


def drop(chance: random.Random, lines: list[bytes]) -> None:
    del lines[chance.randrange(len(lines))]


def repeat(chance: random.Random, lines: list[bytes]) -> None:
    lines.insert(chance.randrange(len(lines)), chance.choice(lines))


def indent(chance: random.Random, lines: list[bytes]) -> None:
    at = chance.randrange(len(lines))
    lines[at] = b" " * chance.randrange(8) + lines[at].lstrip()


def insert(chance: random.Random, lines: list[bytes]) -> None:
    at = chance.randrange(len(lines))
    cut = chance.randrange(len(lines[at]) + 1)
    lines[at] = lines[at][:cut] + chance.choice(NASTY) + lines[at][cut:]


def flip(chance: random.Random, lines: list[bytes]) -> None:
    at = chance.randrange(len(lines))
    if lines[at]:
        raw = bytearray(lines[at])
        raw[chance.randrange(len(raw))] = chance.randrange(256)
        lines[at] = bytes(raw)


WOUNDS: tuple[Wound, ...] = (drop, repeat, indent, insert, flip)


@pytest.mark.soak
def test_wounded_documents_give_findings_and_never_a_traceback() -> None:
    seed = int(os.environ.get("PENSTOCK_FUZZ_SEED", random.randrange(2**32)))
    deadline = monotonic() + float(os.environ.get("PENSTOCK_FUZZ_SECONDS", "60"))
    judged = 0
    while monotonic() < deadline:
        chance = random.Random(seed + judged)
        lines = SHOP.split(b"\n")
        for _ in range(chance.randrange(1, 6)):
            chance.choice(WOUNDS)(chance, lines)
        try:
            result = validate("asyncapi.yaml", raw=b"\n".join(lines))
        except Exception as exc:
            raise AssertionError(f"PENSTOCK_FUZZ_SEED={seed + judged} breaks the loader") from exc
        assert result.contract is not None or result.findings
        judged += 1
    assert judged > 0
