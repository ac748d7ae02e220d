"""Every expression that the kernel takes, against the reference: generated ones on generated events."""

from __future__ import annotations

import json
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.events import CloudEvent
from penstock.events.bindings.kafka import KafkaBinding
from penstock.pipeline.evaluators.kernel.batch_builder import BatchBuilder, Output, numbered, record_bytes
from penstock.pipeline.evaluators.kernel.expressible import (
    FUNCTIONS,
    TESTS,
    _depth,
    digits_of,
    stops_condition,
)
from penstock.pipeline.evaluators.kernel.interpreter import Interpreter
from penstock.pipeline.evaluators.kernel.program import program_of, stops
from penstock.pipeline.evaluators.kernel.record_body import Body
from penstock.pipeline.evaluators.reference.route import Output as RoutedOutput
from penstock.pipeline.evaluators.reference.route import evaluator_of
from penstock.pipeline.plan.functions import FUNCTIONS as PLAN_FUNCTIONS
from penstock.pipeline.plan.nodes import (
    And,
    Arithmetic,
    ArithmeticOperator,
    Attribute,
    Boolean,
    Call,
    Coalesce,
    Compare,
    Comparison,
    Data,
    If,
    In,
    IsNull,
    Like,
    Node,
    Not,
    Now,
    Null,
    Number,
    Or,
    Text,
    Time,
    Type,
)
from penstock.pipeline.plan.route import Assignment, ExpressionKey, RoutePlan
from penstock.pipeline.plan.typing import type_of
from penstock.pipeline.plan.verdict import UNMATCHED
from penstock.pipeline.ports import Target
from penstock.pipeline.stage import Stage, StageRoute
from penstock.record import KafkaRecord
from penstock.wire import routing_layout as at
from penstock.wire.buffer import as_array

NOW = 1_767_225_600_123_456

# Events

TEXTS = [
    *(
        "",
        "a",
        "abc",
        "ABC",
        "Order.Placed",
        "true",
        "FALSE",
        "False",
        "x€y..z",
        "größer ÄB",
        "İstanbul ſtraße",
    ),
    *(
        "  spaced\u3000",
        "aaa",
        "0",
        "-0",
        "7",
        "+7",
        "-12",
        "007",
        "12.50",
        "-0.0",
        "1e3",
        "2147483648",
        "99.999",
    ),
    *("123456789012345678", "1234567890123456789", "0.000000000000000001", "x" * 40, "%_\\", "顧客-1"),
    *("2026-01-01T00:00:00Z", "2024-02-29T23:59:59.999999999+05:30", "1969-12-31T23:59:59.5-00:30", "later"),
    *("2026-02-29T00:00:00Z", "2026-06-30T23:59:60Z", "0001-01-01T00:00:00Z", "2026-01-01t00:00:00z"),
]
NUMBERS = [
    *(
        "0",
        "1",
        "-1",
        "2",
        "3.5",
        "-3.5",
        "0.5",
        "100",
        "100.0",
        "12.50",
        "-0",
        "-0.0",
        "99.995",
        "1e2",
        "1E-3",
    ),
    *("123456789012345678", "-99999999999999999.9", "0.000000000000000001", "1234567890123456789", "1e400"),
    *("0.1000000000000000055511151231257827", "2147483647", "-2147483648", "4294967296", "33333333333333"),
]
JSON_TEXTS = [*(json.dumps(text, ensure_ascii=False) for text in TEXTS), '"esc\\u0061ped"', '"a\\nb"']
scalars = st.sampled_from([*NUMBERS, *JSON_TEXTS, "true", "false", "null", "{}", "[1]"])


def _is_legal(text: str) -> bool:
    return bool(text) and "\n" not in text


@st.composite
def records(draw: st.DrawFn) -> KafkaRecord:
    attributes = {"id": "i-1", "source": "/s", "type": draw(st.sampled_from(["a", "abc", "Order.Placed"]))}
    for name in ("subject", "hop", "ext"):
        if text := draw(st.sampled_from([*filter(_is_legal, TEXTS), "", ""])):
            attributes[name] = text
    if time := draw(st.sampled_from(["", "2026-01-01T00:00:00.123456Z", "2024-02-29T12:00:00+02:00"])):
        attributes["time"] = time
    members = {name: draw(scalars) for name in ("a", "b", "c") if draw(st.booleans())}
    body = "{" + ",".join(f'"{name}":{text}' for name, text in members.items()) + "}"
    event = CloudEvent({**attributes, "datacontenttype": "application/json"}, body.encode())
    return KafkaBinding().encode(event, key=b"k")


# Expressions: a strategy for each type, with operands of what is given.

Strategy = st.SearchStrategy[Node]
paths = st.sampled_from([Data((name,)) for name in "abc"])
attributes = st.sampled_from([Attribute(name) for name in ("type", "subject", "hop", "ext", "time")])
small = st.sampled_from(
    [Number(Decimal(text)) for text in ("0", "1", "2", "-1", "-3", "3", "1.5", "7", "-9", "40")]
)
constants = st.one_of(
    small,
    st.sampled_from(
        [
            Number(Decimal(text))
            for text in ("12.50", "100", "0.01", "123456789012345678", "2147483648", "-0.3")
        ]
    ),
    st.decimals(-(10**12), 10**12, places=6).map(Number),
)
words = st.sampled_from([Text(text) for text in TEXTS])


def call(name: str, *arguments: Strategy) -> Strategy:
    return st.builds(lambda *found: Call(name, found), *arguments)


def either(inner: Strategy, conditions: Strategy) -> Strategy:
    chosen = st.lists(inner, min_size=1, max_size=3).map(lambda found: Coalesce(tuple(found)))
    return chosen | st.builds(If, conditions, inner, inner)


def strategies(depth: int) -> dict[Type, Strategy]:
    """Give expressions of each type of so many levels."""
    if depth == 0:
        return {
            Type.TEXT: st.one_of(
                words, attributes, call("string_of_json", paths), call("text_of_json", paths)
            ),
            Type.NUMBER: st.one_of(
                constants, call("number_of_json", paths), call("number_of_text", attributes)
            ),
            Type.TIME: st.one_of(
                st.sampled_from([Now(), Time(NOW), Time(0), Time(-1)]), call("time_of_text", attributes)
            ),
            Type.BOOLEAN: st.one_of(
                st.sampled_from([Boolean(True), Boolean(False), Null()]), call("boolean_of_json", paths)
            ),
        }
    below = strategies(depth - 1)
    text, number, time, boolean = (below[kind] for kind in (Type.TEXT, Type.NUMBER, Type.TIME, Type.BOOLEAN))
    typed = {Type.TEXT: text, Type.NUMBER: number, Type.TIME: time, Type.BOOLEAN: boolean}
    signatures = [(name, PLAN_FUNCTIONS[name]) for name in (*FUNCTIONS, *TESTS, "text_of_boolean")]
    found: dict[Type, list[Strategy]] = {kind: [each, either(each, boolean)] for kind, each in typed.items()}
    for name, signature in signatures:
        if name == "within":
            found[Type.NUMBER].append(call(name, number, constants, constants))
        elif name == "concat":
            found[Type.TEXT].append(st.lists(text, max_size=4).map(lambda each: Call("concat", tuple(each))))
        else:
            # Counts and positions are small mostly: anything else is null at once.
            operands = [
                small | typed[kind] if place and kind is Type.NUMBER else typed[kind]
                for place, kind in enumerate(signature.parameters)
            ]
            found[signature.returns].append(call(name, *operands))
    found[Type.NUMBER].append(
        st.builds(Arithmetic, st.sampled_from(list(ArithmeticOperator)), number, number)
    )
    comparisons = st.sampled_from(list(Comparison))
    for each in typed.values():
        found[Type.BOOLEAN] += [
            st.builds(Compare, comparisons, each, each),
            st.builds(In, each, st.lists(each, min_size=1, max_size=3).map(tuple)),
            st.builds(IsNull, each),
        ]
    several = st.lists(boolean, min_size=1, max_size=3).map(tuple)
    found[Type.BOOLEAN] += [
        *(st.builds(And, several), st.builds(Or, several), st.builds(Not, boolean)),
        st.builds(Like, text, st.sampled_from(["%a%", "_", "Order%", "%", "", "x€_%z", "\\%\\_%"])),
        st.builds(IsNull, paths),
    ]
    return {kind: st.one_of(each) for kind, each in found.items()}


LEVELS = {depth: strategies(depth) for depth in (1, 2)}


def plans(depth: int) -> st.SearchStrategy[RoutePlan]:
    by_type = LEVELS[depth]
    assigned = st.builds(
        lambda text, time: (Assignment("ext", text), Assignment("time", time)),
        by_type[Type.TEXT],
        by_type[Type.TIME],
    )
    return st.builds(
        lambda where, set_, key: RoutePlan(name="r", where=where, set=set_, key=ExpressionKey(key)),
        st.just(Boolean(True)) | by_type[Type.BOOLEAN],
        st.just(()) | assigned,
        by_type[Type.TEXT],
    )


# The two sides


class Kernel:
    """The kernel alone, with a plan in it."""

    def __init__(self, plan: RoutePlan) -> None:
        route = StageRoute(plan=plan, targets=(Target(topic="out"),), dead=Target(topic="dead"))
        stage = Stage(pipeline="p", routes=(route,), dead=Target(topic="dead"), unknown=())
        self.stops = stops(stage)
        if self.stops:
            return
        program = program_of(stage)
        self.written: list[tuple[bytes | None, dict[str, bytes | None]]] = []
        self._outbox = BatchBuilder(
            [1] * len(program.targets),
            [None] * len(program.targets),
            self._take,
            batch_bytes=1 << 16,
            pick=None,
        )
        self._interpreter = Interpreter(program, self._outbox)
        self._interpreter.set_now(NOW)

    def _take(self, output: Output) -> None:
        body = Body.whole(as_array(bytes(output.body.records)), output.body.count)
        for record in body.kafka_records(body.starts(), "", 0):
            self.written.append((record.key, dict(record.headers)))

    def route(self, record: KafkaRecord) -> list[Any] | None:
        """Give what is written for a record; None if the kernel is not certain."""
        self.written = []
        raw = numbered(record_bytes(record.key, record.value, record.headers), 0)
        self._interpreter.begin(Body.whole(as_array(raw), 1))
        status = self._interpreter.go()
        self._outbox.flush()
        assert status in (at.DONE, at.SLOW)
        return self.written if status == at.DONE else None


def by_reference(plan: RoutePlan, record: KafkaRecord) -> list[Any] | None:
    """Give what a record becomes; None for what only the reference may decide."""
    routed = evaluator_of(plan).route(KafkaBinding().decode(record), key=record.key, now=NOW)
    if isinstance(routed, RoutedOutput):
        return [(routed.key, dict(KafkaBinding().encode(routed.event, key=None).headers))]
    return [] if routed is UNMATCHED else None


def check(plan: RoutePlan, found: list[KafkaRecord]) -> int:
    """Compare on some records; give how many the kernel decided."""
    kernel = Kernel(plan)
    assert kernel.stops == ()
    decided = 0
    for record in found:
        made = kernel.route(record)
        if made is not None:
            assert made == by_reference(plan, record), (plan.explain(), record)
            decided += 1
    return decided


@pytest.mark.parametrize("depth", LEVELS)
def test_generated_expressions_mean_what_they_mean_to_the_reference(depth: int) -> None:
    decided = seen = 0

    @given(plans(depth), st.lists(records(), min_size=4, max_size=8))
    def run(plan: RoutePlan, found: list[KafkaRecord]) -> None:
        nonlocal decided, seen
        decided, seen = decided + check(plan, found), seen + len(found)

    run()
    assert decided > 0.3 * seen  # of texts and numbers most of which are odd


TEXT, NUMBER, TIME, BOOLEAN = Type.TEXT, Type.NUMBER, Type.TIME, Type.BOOLEAN
AS_TEXT: dict[Type, Callable[[Node], Node]] = {
    Type.TEXT: lambda node: node,
    Type.NUMBER: lambda node: Call("text_of_number", (node,)),
    Type.TIME: lambda node: Call("text_of_time", (node,)),
    Type.BOOLEAN: lambda node: Call("text_of_boolean", (node,)),
}
OPERATORS = [*ArithmeticOperator]


@pytest.mark.parametrize("name", [*FUNCTIONS, *TESTS, *OPERATORS])
def test_each_function_alone(name: str) -> None:
    """Each is decided by the kernel for some events, and never otherwise than by the reference."""
    of_type = strategies(0)
    decided = 0

    def expressions() -> Strategy:
        if isinstance(name, ArithmeticOperator):
            return st.builds(Arithmetic, st.just(name), of_type[NUMBER], of_type[NUMBER])
        if name == "within":
            return call(name, of_type[NUMBER], constants, constants)
        if name == "concat":
            return st.lists(of_type[TEXT], max_size=20).map(lambda each: Call(name, tuple(each)))
        kinds = PLAN_FUNCTIONS[name].parameters
        return call(
            name, *(small | of_type[k] if n and k is NUMBER else of_type[k] for n, k in enumerate(kinds))
        )

    @given(expressions(), st.lists(records(), min_size=3, max_size=6))
    def run(node: Node, found: list[KafkaRecord]) -> None:
        nonlocal decided
        plan = RoutePlan(name="r", key=ExpressionKey(AS_TEXT[type_of(node)](node)))
        decided += check(plan, found)

    run()
    assert decided > 0


def test_functions_that_the_kernel_does_not_know_are_none() -> None:
    known = {*FUNCTIONS, *TESTS, "text_of_boolean"}
    assert {name for name in PLAN_FUNCTIONS if not name.endswith("_of_json")} == known


@pytest.mark.parametrize(
    ("node", "stopped"),
    [
        (Compare(Comparison.EQUAL, Data(("a",)), Data(("b",))), ["data.a = data.b"]),
        (IsNull(Coalesce((Data(("a",)), Data(("b",))))), []),
        (
            Compare(Comparison.LESS, Call("length", (Attribute("type"),)), Number(Decimal(10) ** 18)),
            ["1000000000000000000"],
        ),
    ],
)
def test_what_stops_the_kernel_is_the_smallest_part(node: Node, stopped: list[str]) -> None:
    assert [*stops_condition(node)] == stopped


@pytest.mark.parametrize(
    ("text", "digits"), [("-0", None), ("0", (0, 0)), ("-0.0", None), ("-12.50", (-125, 1))]
)
def test_a_zero_that_is_written_with_a_sign_is_left_to_the_reference(
    text: str, digits: tuple[int, int] | None
) -> None:
    assert digits_of(Number(Decimal(text))) == digits


def test_a_membership_has_its_operand_a_copy_of_it_and_an_element_on_the_stack() -> None:
    """What needs more values than the kernel has room for is left to the reference."""
    assert _depth(In(Attribute("type"), (Text("a"), Call("lower", (Text("B"),))))) == 3
