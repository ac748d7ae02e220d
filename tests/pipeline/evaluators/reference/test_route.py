"""Whole routes: verdicts, ids, keys, tombstones, expiry, and what a plan refuses."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.errors import PipelineError, UnsupportedPlan
from penstock.events import CloudEvent, absent
from penstock.events.types import AttributeType
from penstock.pipeline.evaluators.reference.route import Output, RouteEvaluator
from penstock.pipeline.plan.identity import derived_id
from penstock.pipeline.plan.nodes import Attribute, Call, Data, Text, Time, Type
from penstock.pipeline.plan.route import (
    Assignment,
    Expiry,
    ExpressionKey,
    FunctionKey,
    Mode,
    RoutePlan,
    SimpleKey,
    Tombstones,
)
from penstock.pipeline.plan.sql import parse_sql
from penstock.pipeline.plan.verdict import (
    DATA_INVALID,
    EXPIRED,
    INVALID_ATTRIBUTE,
    KEEP,
    MISSING_ATTRIBUTE,
    REASONS,
    TOMBSTONE,
    TOMBSTONE_DROPPED,
    UNMATCHED,
    Verdict,
)


def event(data: Any = b'{"total": 150, "customer": "c-7", "vip": true}', **attributes: str) -> CloudEvent:
    core = {"id": "17", "source": "/shop", "type": "placed", "datacontenttype": "application/json"}
    return CloudEvent(core | attributes, data)


def plan(where: str = "TRUE", *, set: dict[str, str] | None = None, **more: Any) -> RoutePlan:
    assignments = (
        Assignment(name, parse_sql(text, Type.TIME if name == "time" else Type.TEXT))
        for name, text in (set or {}).items()
    )
    return RoutePlan(name="large-orders", where=parse_sql(where), set=tuple(assignments), **more)


def route_event(plan: RoutePlan, event: CloudEvent, **more: Any) -> Output | Verdict:
    return RouteEvaluator(plan).route(event, **more)


def verdict_of(found: Output | Verdict) -> Verdict:
    return KEEP if isinstance(found, Output) else found


def kept(found: Output | Verdict) -> Output:
    assert isinstance(found, Output)
    return found


def only(found: Output | Verdict) -> CloudEvent:
    return kept(found).event


@pytest.mark.parametrize(
    ("where", "data", "verdict"),
    [
        ("type = 'placed' AND data.total >= 100", b'{"total": 100}', KEEP),
        ("type = 'placed' AND data.total >= 100", b'{"total": 99}', UNMATCHED),
        ("type = 'placed' AND data.total >= 100", b'{"total": "150"}', UNMATCHED),
        ("type = 'placed' AND data.total >= 100", b"{}", UNMATCHED),
        ("type = 'placed' AND data.total >= 100", b"{", DATA_INVALID),
        ("type = 'other' AND data.total >= 100", b"{", UNMATCHED),
        ("data.total >= 100 AND missing = 'x'", b"{", UNMATCHED),
        ("type = 'placed'", b"{", KEEP),
        ("data.total IS NULL", b"{", DATA_INVALID),
        ("data.total IS NULL", absent, KEEP),
    ],
)
def test_verdicts(where: str, data: Any, verdict: Verdict) -> None:
    assert verdict_of(route_event(plan(where), event(data))) is verdict


def test_data_that_only_a_set_reads_must_be_readable_as_well() -> None:
    assert verdict_of(route_event(plan(set={"subject": "data.customer"}), event(b"{"))) is DATA_INVALID


def test_an_unchanged_event_is_the_same_event() -> None:
    given = event(subject="c-7")
    for routed in (route_event(plan(), given), route_event(plan(set={"subject": "data.customer"}), given)):
        assert only(routed) is given


def test_a_transformed_event_has_a_derived_id_and_names_its_cause() -> None:
    given = event()
    found = only(route_event(plan(set={"subject": "data.customer"}), given))
    assert found.subject == "c-7"
    assert found.id == derived_id("large-orders", "/shop", "17") == "b4175c629eb7a85becbc10648cf42b44"
    assert found.get("causationid") == "17"
    assert found.data_bytes == given.data_bytes
    assert only(route_event(plan(set={"subject": "data.customer"}), given)) == found


@pytest.mark.parametrize(
    ("parts", "id"),
    [
        # Golden: another engine, or another version, must give the same.
        (("r", "/s", "1", 0), "714d62764ab555a1675a514a30a89659"),
        (("r", "/s", "1", 1), "c682e9c6ee880627abf14cbecdb8c084"),
        (("é😀", "", "x,1:y", 12), "d49a3bb3a010791af428a700d4a8952f"),
    ],
)
def test_golden_ids(parts: tuple[str, str, str, int], id: str) -> None:
    assert derived_id(*parts) == id


def test_ids_of_different_parts_differ() -> None:
    quadruples = [
        ("a", "b", "c", 0),
        ("ab", "", "c", 0),
        ("a", "bc", "", 0),
        ("a", "b,1:c", "", 0),
        ("a", "b", "c", 1),
    ]
    assert len({derived_id(*parts) for parts in quadruples}) == len(quadruples)


def test_partitionkey_alone_does_not_transform() -> None:
    routed = route_event(
        plan(set={"partitionkey": "data.customer"}, key=SimpleKey.PARTITIONKEY), event(), key=b"old"
    )
    found = only(routed)
    assert (found.id, found.get("causationid"), found.get("partitionkey")) == ("17", None, "c-7")
    assert kept(routed).key == b"c-7"


@pytest.mark.parametrize(
    ("rule", "key"),
    [
        (SimpleKey.KEEP, b"old"),
        (SimpleKey.NONE, None),
        (SimpleKey.PARTITIONKEY, None),
        (ExpressionKey(Call("text_of_json", (Data(("total",)),))), b"150"),
        (ExpressionKey(Attribute("missing")), None),
        (ExpressionKey(Text("é")), "é".encode()),
        (FunctionKey("shop.keys:of"), b"17"),
    ],
)
def test_keys(rule: Any, key: bytes | None) -> None:
    routed = route_event(plan(key=rule), event(), key=b"old", key_function=lambda found: found.id.encode())
    assert kept(routed).key == key


def test_a_key_function_has_to_be_given() -> None:
    with pytest.raises(UnsupportedPlan, match="key"):
        route_event(plan(key=FunctionKey("shop.keys:of")), event())


def test_set_drop_and_rename_see_the_event_as_it_came() -> None:
    route = plan(
        set={"subject": "xa", "xa": "subject", "time": "'2024-01-31'"}, drop=("xb",), rename=(("xc", "xd"),)
    )
    found = only(route_event(route, event(subject="s", xa="a", xb="b", xc="c")))
    assert dict(found.attributes) == {
        "specversion": "1.0", "id": found.id, "source": "/shop", "type": "placed", "subject": "a", "xa": "s",
        "datacontenttype": "application/json", "xd": "c", "time": "2024-01-31T00:00:00Z", "causationid": "17",
    }  # fmt: skip


def test_null_removes_an_attribute() -> None:
    found = only(route_event(plan(set={"subject": "data.nothing"}), event(subject="s")))
    assert found.subject is None


@pytest.mark.parametrize(
    ("set", "verdict"),
    [
        ({"type": "data.nothing"}, MISSING_ATTRIBUTE),
        ({"source": "NULL"}, MISSING_ATTRIBUTE),
        ({"subject": "replace(type, 'placed', '')"}, INVALID_ATTRIBUTE),
        ({"partitionkey": "left(type, 0)"}, INVALID_ATTRIBUTE),
        ({"xa": "left(type, 0)"}, KEEP),
        ({"xa": "concat(type, '\\n')"}, INVALID_ATTRIBUTE),
        ({"xa": "concat(type, '\uffff')"}, INVALID_ATTRIBUTE),
        ({"source": "concat(source, ' ')"}, INVALID_ATTRIBUTE),
        ({"source": "concat(source, '/a')"}, KEEP),
        ({"dataschema": "type"}, INVALID_ATTRIBUTE),
    ],
)
def test_what_an_attribute_may_be_set_to(set: dict[str, str], verdict: Verdict) -> None:
    assert verdict_of(route_event(plan(set=set), event())) is verdict


@pytest.mark.parametrize(
    ("mode", "tombstones", "null"),
    [
        (Mode.KEEP, Tombstones.PASS, True),
        (Mode.BINARY, Tombstones.EVENT, True),
        (Mode.STRUCTURED, Tombstones.PASS, True),
        (Mode.STRUCTURED, Tombstones.DROP, True),
        (Mode.STRUCTURED, Tombstones.EVENT, False),
    ],
)
def test_an_event_without_data_stays_a_tombstone(mode: Mode, tombstones: Tombstones, null: bool) -> None:
    route = plan(mode=mode, tombstones=tombstones)
    assert kept(route_event(route, event(absent))).null_value is null
    assert kept(route_event(route, event(b""))).null_value is False


def test_null_values_that_are_no_events() -> None:
    verdicts = [RouteEvaluator(plan(tombstones=policy)).verdict_on_null for policy in Tombstones]
    assert verdicts == [KEEP, TOMBSTONE_DROPPED, TOMBSTONE, KEEP]


@pytest.mark.parametrize(
    ("policy", "expirytime", "verdict"),
    [
        (Expiry.DISCARD, "1970-01-01T00:00:00.999999Z", EXPIRED),
        (Expiry.DISCARD, "1970-01-01T00:00:01Z", KEEP),
        (Expiry.DISCARD, "soon", KEEP),
        (Expiry.KEEP, "1970-01-01T00:00:00Z", KEEP),
    ],
)
def test_expired_events(policy: Expiry, expirytime: str, verdict: Verdict) -> None:
    assert (
        verdict_of(route_event(plan(expiry=policy), event(expirytime=expirytime), now=1_000_000)) is verdict
    )


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ({"set": (Assignment("id", Text("a")),)}, "cannot change id"),
        ({"set": (Assignment("recordedtime", Text("a")),)}, "cannot change recordedtime"),
        ({"set": (Assignment("My_Ext", Text("a")),)}, "not the name"),
        ({"set": (Assignment("subject", Text("")),)}, "cannot be"),
        ({"set": (Assignment("source", Text("a b")),)}, "cannot be"),
        ({"set": (Assignment("subject", Time(0)),)}, "is time, not text"),
        ({"set": (Assignment("time", Text("a")),)}, "is text, not time"),
        ({"set": (Assignment("xa", Text("a")), Assignment("xa", Text("b")))}, "renamed twice"),
        ({"drop": ("type",)}, "every event needs type"),
        ({"drop": ("expirytime",)}, "every event needs expirytime"),
        ({"drop": ("xa",), "rename": (("xa", "xb"),)}, "renamed twice"),
        ({"rename": (("xa", "subject"),)}, "type of its own"),
        ({"where": Text("a")}, "is text, not boolean"),
        ({"key": ExpressionKey(Data(("a",)))}, "is JSON value, not text"),
    ],
)
def test_plans_that_contradict_themselves(parts: dict[str, Any], words: str) -> None:
    with pytest.raises(PipelineError, match=words):
        RoutePlan(name="r", **parts)


def test_a_route_explains_itself() -> None:
    route = plan("data.total >= 100", set={"subject": "data.customer"}, drop=("xb",), key=SimpleKey.NONE)
    assert route.explain() == (
        "route large-orders\n"
        "  where number_of_json(data.total) >= 100\n"
        "  drop xb\n"
        "  set subject = text_of_json(data.customer)\n"
        "  key none, mode keep\n"
        "  tombstones pass, expired events keep\n"
        "  reads data.customer, data.total"
    )
    assert route.paths == {("total",), ("customer",)}
    assert route.attributes == frozenset()


def test_every_verdict_but_keep_has_a_sentence() -> None:
    assert KEEP not in REASONS
    assert all(
        REASONS[verdict] for verdict in (UNMATCHED, EXPIRED, DATA_INVALID, TOMBSTONE, INVALID_ATTRIBUTE)
    )


@pytest.mark.parametrize(
    ("number", "text"),
    [
        ("18446744073709551617", "18446744073709551617"),
        ("-123456789012345678901234567890.5", "-123456789012345678901234567890.5"),
        ("1e300", "1e300"),
        ("1e999", "1e999"),
        ("1e3", "1000"),
        ("10.50", "10.5"),
    ],
)
def test_a_number_beyond_the_range_of_decimals_is_set_as_it_was_written(number: str, text: str) -> None:
    found = route_event(plan(set={"stage": "data.total"}), event(b'{"total":%s}' % number.encode()))
    assert only(found).get("stage") == text


def test_a_type_goes_with_its_value_under_another_name() -> None:
    given = CloudEvent({"id": "1", "source": "/s", "type": "t", "xc": 5})
    made = only(route_event(plan(set={"subject": "'7'"}, rename=(("xc", "xd"),)), given))
    assert made.types == {"xd": AttributeType.INTEGER} and made.integer("xd") == 5
