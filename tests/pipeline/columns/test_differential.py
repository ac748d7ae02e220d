"""The columns engine gives the same value and verdict as the reference on every row.

Plans and events are made at random from a seed that hypothesis draws and prints; many expressions go into one
Spark job. The corpus below holds what random JSON seldom hits.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from penstock.events import CloudEvent, absent
from penstock.pipeline.plan.explain import explain
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
    Null,
    Number,
    Or,
    Text,
    Time,
    Type,
    paths_read,
)
from penstock.pipeline.plan.numbers import read_number
from penstock.pipeline.plan.route import (
    Assignment,
    Expiry,
    ExpressionKey,
    Mode,
    RoutePlan,
    SimpleKey,
    Tombstones,
)
from penstock.pipeline.plan.sql import parse_sql
from penstock.pipeline.plan.typing import check
from penstock.pipeline.reference.data import read_data, tagged, unreadable
from penstock.pipeline.reference.evaluation import Scope, evaluate
from penstock.pipeline.reference.route import route_event

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.server

SCHEMA = (
    "n int, id string, source string, type string, subject string, time string, datacontenttype string, "
    "dataschema string, extensions map<string,string>, data binary, key binary"
)
CORE = ("id", "source", "type", "subject", "time", "datacontenttype", "dataschema")
KEYS = [None, b"", b"k\xff"]

# Texts that are numbers, times, booleans, patterns, or nearly so.
TEXTS = [
    "", "a", "b", "ab", "abc", "order-17", "ORDER", "É", "é😀x", "😀", "\U0010ffff", "\uffff", " a ",
    "\t", "a%b",
    "a_b", "\\", "a\\b", "'", '"', "true", "TRUE", "false", "null", "0", "-0", "1", "01", "+1", "1.0", "1.50",
    "-12.5", "1e3", "1E-2", "1e-30", "1e400", "NaN", "9007199254740993", "9007199254740992",
    "9999999999999999999", "10000000000000000000", "12345678901234567890123", "0.1", "0.100000000000000000",
    "0.1234567890123456789", "0.123456789012345678", "1000e-20", "1e18", "1e19", "0e5", "0e99999", "-0e0",
    "2147483647", "2147483648", "-2147483648", "5e-324", "1e-400", "0.5000000000000000000000", "123e-2",
    "1970-01-01T00:00:00Z", "1969-12-31T23:59:59.999999999Z", "2024-02-29T12:00:00.123456+05:30",
    "2023-02-29T12:00:00Z", "1990-12-31T15:59:60-08:00", "1990-12-31T15:59:60Z", "0001-01-01T00:00:00+01:00",
    "0000-01-01T00:00:00Z", "9999-12-31T23:59:60Z", "9999-12-31T23:59:59.9Z", "2024-01-01t00:00:00z",
    "2024-01-01 00:00:00Z", "2024-01-01T00:00:00+23:59", "2024-01-01T00:00:00-00:00", "2024-01-01T24:00:00Z",
    "2024-01-01", "2024-01-01T00:00:00.1Z", "2024-01-01T00:00:00", "1582-10-10T00:00:00Z",
]  # fmt: skip
NUMBERS = [
    "0", "1", "-1", "2", "3", "7", "0.1", "-0.1", "0.000000000000000001", "1.5", "-2.5", "100", "99.999999",
    "9007199254740993", "9999999999999999999.999999999999999999", "5000000000000000000",
    "-9223372036854775808",
    "4", "18", "2147483647", "0.0000005", "0.333333333333333333", "3162277660.168379332",
    "12345.678901234567",
]  # fmt: skip
MOMENTS = [0, -1, 1, 999, 1_000, -1_500_000, 86_400_000_000, 1_700_000_000_123_456, -62_135_596_800_000_000,
           253_402_300_799_999_999, -12_219_292_800_000_000]  # fmt: skip
PATTERNS = [
    "%",
    "_",
    "a%",
    "%b",
    "a_b",
    "",
    "%a%b%",
    "order-__",
    "\\%",
    "a\\_b",
    "\\\\",
    "%😀%",
    "_%_",
    "%\n%",
    "é_x",
]
PATHS: list[tuple[str | int, ...]] = [
    (), ("a",), ("b",), ("c", "d"), ("e", 0), ("e", 1, "f"), ("sku no",), ("it's",), ('q"t',), ("é😀",),
    ("",),
    ("a", 0), (0,), ("e", "0"), ("c", "d", "e"), ("\\",), ("n",),
]  # fmt: skip
NAMES = ["a", "b", "c", "d", "e", "f", "sku no", "it's", 'q"t', "é😀", "", "\\", "n", "A"]


class Maker:
    """Random plans and events from one seed."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.pick: Callable[[Any], Any] = self.random.choice

    # Expressions, by type.

    def node(self, want: Type, depth: int) -> Node:
        makers = {
            Type.BOOLEAN: self.boolean, Type.NUMBER: self.number, Type.TEXT: self.text, Type.TIME: self.time,
            Type.JSON: lambda depth: Data(self.pick(PATHS)),
        }  # fmt: skip
        chance = self.random.random()
        if chance < 0.03:
            return Null()
        if depth > 0 and chance < 0.10:
            return If(
                self.node(Type.BOOLEAN, depth - 1), self.node(want, depth - 1), self.node(want, depth - 1)
            )
        if depth > 0 and chance < 0.15:
            return Coalesce((self.node(want, depth - 1), self.node(want, depth - 1)))
        return makers[want](depth)

    def boolean(self, depth: int) -> Node:
        if depth <= 0:
            return self.pick(
                [
                    Boolean(self.pick([True, False])),
                    Call("boolean_of_json", (Data(self.pick(PATHS)),)),
                    Call("boolean_of_text", (self.attribute(),)),
                    Call("cesql_boolean", (self.attribute(),)),
                    IsNull(Data(self.pick(PATHS))),
                    IsNull(self.attribute()),
                ]
            )
        below = depth - 1
        rule = self.pick(["compare"] * 6 + ["and", "or", "not", "in", "like", "null", "test"])
        if rule == "compare":
            type_ = self.pick([Type.NUMBER] * 3 + [Type.TEXT, Type.TIME, Type.BOOLEAN, Type.JSON])
            return Compare(self.pick(list(Comparison)), self.node(type_, below), self.node(type_, below))
        if rule in ("and", "or"):
            parts = tuple(self.node(Type.BOOLEAN, below) for _ in range(self.pick([2, 3])))
            return And(parts) if rule == "and" else Or(parts)
        if rule == "not":
            return Not(self.node(Type.BOOLEAN, below))
        if rule == "in":
            type_ = self.pick([Type.NUMBER, Type.TEXT, Type.JSON])
            return In(
                self.node(type_, below), tuple(self.node(type_, below) for _ in range(self.pick([1, 3])))
            )
        if rule == "like":
            return Like(self.node(Type.TEXT, below), self.pick(PATTERNS))
        if rule == "null":
            return IsNull(self.node(self.pick([Type.NUMBER, Type.TEXT, Type.TIME, Type.JSON]), below))
        name = self.pick(["starts_with", "ends_with", "contains"])
        return Call(name, (self.node(Type.TEXT, below), self.node(Type.TEXT, below)))

    def attribute(self) -> Node:
        return Attribute(self.pick(["type", "subject", "time", "xa", "xb", "xc", "expirytime"]))

    def number(self, depth: int) -> Node:
        if depth <= 0 or self.random.random() < 0.3:
            return self.pick(
                [
                    Number(Decimal(self.pick(NUMBERS))),
                    Call("number_of_json", (Data(self.pick(PATHS)),)),
                    Call("number_of_text", (self.attribute(),)),
                    Call("cesql_integer", (self.attribute(),)),
                    Call("number_of_text", (Text(self.pick(TEXTS)),)),
                ]
            )
        below = depth - 1
        rule = self.pick(["arithmetic"] * 3 + ["call", "round", "quotient", "length", "time", "within"])
        if rule == "arithmetic":
            operands = self.node(Type.NUMBER, below), self.node(Type.NUMBER, below)
            return Arithmetic(self.pick(list(ArithmeticOperator)), *operands)
        if rule == "call":
            return Call(self.pick(["abs", "floor", "ceil", "truncate"]), (self.node(Type.NUMBER, below),))
        if rule == "round":
            return Call("round", (self.node(Type.NUMBER, below), Number(Decimal(self.pick([0, 2, 6, 18])))))
        if rule == "quotient":
            return Call("quotient", (self.node(Type.NUMBER, below), self.node(Type.NUMBER, below)))
        if rule == "within":
            return Call("within", tuple(self.node(Type.NUMBER, below) for _ in range(3)))
        if rule == "length":
            return Call("length", (self.node(Type.TEXT, below),))
        names = [
            "year",
            "month",
            "day",
            "hour",
            "minute",
            "second",
            "unix_seconds",
            "unix_millis",
            "unix_micros",
        ]
        return Call(self.pick(names), (self.node(Type.TIME, below),))

    def text(self, depth: int) -> Node:
        if depth <= 0:
            return self.pick(
                [
                    Text(self.pick(TEXTS)),
                    self.attribute(),
                    Call("string_of_json", (Data(self.pick(PATHS)),)),
                    Call("text_of_json", (Data(self.pick(PATHS)),)),
                ]
            )
        below = depth - 1
        text = self.node(Type.TEXT, below)
        name = self.pick(
            ["lower", "upper", "substring", "left", "right", "concat", "trim", "ltrim", "rtrim", "replace",
             "text_of_number", "text_of_boolean", "text_of_time"]
        )  # fmt: skip
        if name.startswith("text_of_"):
            type_ = {"number": Type.NUMBER, "boolean": Type.BOOLEAN, "time": Type.TIME}[name[8:]]
            return Call(name, (self.node(type_, below),))
        count = Number(
            Decimal(self.pick(["0", "1", "2", "-1", "-3", "5", "1.5", "2147483648", "2147483647"]))
        )
        arguments: dict[str, tuple[Node, ...]] = {
            "lower": (), "upper": (), "left": (count,), "right": (count,),
            "concat": (self.node(Type.TEXT, below),),
            "substring": (count, Number(Decimal(self.pick(["0", "1", "3", "-1", "2147483647"])))),
            "replace": (self.node(Type.TEXT, 0), self.node(Type.TEXT, 0)),
            **dict.fromkeys(("trim", "ltrim", "rtrim"), (Text(self.pick([" ", "ab", "", "😀x", "\t "])),)),
        }  # fmt: skip
        return Call(name, (text, *arguments[name]))

    def time(self, depth: int) -> Node:
        if depth > 0 and self.random.random() < 0.3:
            by = Number(
                Decimal(self.pick(["1", "-1", "3600000000", "1e17", "-1e17", "0.5", "1e18", "-1e18"]))
            )
            return Call("shift", (self.node(Type.TIME, depth - 1), by))
        return self.pick(
            [
                Time(self.pick(MOMENTS)),
                Call("time_of_text", (self.attribute(),)),
                Call("time_of_text", (self.node(Type.TEXT, 0),)),
                Call("time_of_text", (Call("string_of_json", (Data(self.pick(PATHS)),)),)),
            ]
        )

    # Events.

    def event(self) -> dict[str, Any]:
        attributes = {
            "specversion": "1.0",
            "id": self.pick(["1", "é", "x" * 40]),
            "source": self.pick(["/s", "u:x"]),
        }
        attributes["type"] = self.pick(["a", "b", "order-17", "true"])
        for name in ("subject", "time", "xa", "xb", "xc", "expirytime"):
            if self.random.random() < 0.7:
                attributes[name] = self.pick(TEXTS)
        if media := self.pick(
            [None, "application/json", "application/json", "text/JSON ; a=b", "a/b+json", "a/xml"]
        ):
            attributes["datacontenttype"] = media
        return {"attributes": attributes, "data": self.data(), "key": self.pick(KEYS)}

    def data(self) -> bytes | None:
        chance = self.random.random()
        if chance < 0.05:
            return None
        if chance < 0.15:
            return self.pick(CORPUS)
        raw = self.json(3).encode()
        if chance < 0.25 and raw:  # broken by one byte
            place = self.random.randrange(len(raw))
            raw = (
                raw[:place]
                + self.pick([b"", b"}", b'"', b"\\", b"]", b",", b"\xff", b" ", b"0"])
                + raw[place + 1 :]
            )
        return raw

    def json(self, depth: int) -> str:
        space = self.pick(["", "", " ", "\n\t"])
        if depth == 3 or (depth > 0 and self.random.random() < 0.5):
            if depth < 3 and self.random.random() < 0.4:
                items = [self.json(depth - 1) for _ in range(self.pick([0, 1, 2, 3]))]
                return f"[{(space + ',').join(items)}{space}]"
            names = self.random.sample(NAMES, self.pick([0, 2, 4, 6]))
            if self.random.random() < 0.03 and names:
                names.append(names[0])
            members = [f"{self.string(name)}{space}:{space}{self.json(depth - 1)}" for name in names]
            return "{" + f"{space},".join(members) + "}"
        numbers = [
            text for text in TEXTS + NUMBERS if text[-1:].isdigit() and "T" not in text and text[0] != "+"
        ]
        kinds = [lambda: self.string(self.pick(TEXTS)), lambda: self.pick(numbers), lambda: self.pick(WORDS)]
        return str(self.pick(kinds)())

    def string(self, text: str) -> str:
        """Write a JSON string, plainly or with every character escaped."""
        if self.random.random() < 0.3:
            units = text.encode("utf-16-be")
            return (
                '"' + "".join(f"\\u{units[i]:02x}{units[i + 1]:02X}" for i in range(0, len(units), 2)) + '"'
            )
        return json.dumps(text, ensure_ascii=self.pick([True, False]))


WORDS = ["true", "false", "null"]


def deep(opening: str, closing: str, levels: int) -> bytes:
    return (opening * levels + "1" + closing * levels).encode()


CORPUS: list[bytes] = [
    b"", b" ", b"null", b"1", b"\"a\"", b"[]", b"{}", b"{} ", b"{}{}", b"{} x", b"{}]", b"{}}", b"{},{}",
    b'1,"x":2',
    b'{"a":1}]x', b'{"a":1}}x', b"01", b"1.", b".5", b"+1", b"-", b"1e", b"1e+", b"--1", b"1-2", b"1 2",
    b"[1 2]",
    b"[1,]", b"[,1]", b'{"a":1,}', b'{"a"}', b'{"a":}', b"{a:1}", b"{'a':1}", b'{"a":1,"a":2}', b"tru",
    b"truefalse",
    b"NaN", b"Infinity", b"-Infinity", b"[NaN]", b"// c\n1", b"/* c */1", b"\xef\xbb\xbf1", b"\xff",
    b'"\xff"',
    b'"\xed\xa0\x80"', b'"\xc0\xaf"', b'"\xf4\x90\x80\x80"', b'"\x01"', b'"\t"', b'"\n"', b'"\x7f"', b'"\\x"',
    b'"\\u12"', b'"\\ud800"', b'"\\udc00"', b'"\\ud83d\\ude00"', b'"\\ud83d\\ud83d\\ude00"', b'"\\\\ud800"',
    b'"\\\\\\ud800"', b'"\\ud800\\\\udc00"', b'{"\\ud800":1}', b'{"a":"\\udc00"}', b'"\\', b'"\\"',
    b'"\\\\"', b'"\\\\\\"',
    b'"a\\"', b'{"a":"b\\"c","d":"\\\\"}', b'"\\u0000"', b'{"\\u0061":1,"a":2}', b'{"\\u0061":5}',
    b'{"a\\u0022":1}',
    b'\\"', b'{"a":\\"b"}', b'"a"b"', b'"a""b"', b'5"a"', b'"a"5', b"true5", b"5true", b'{"a":1"b":2}',
    b"\x0b1",
    b"1\x00", b"\x001", b'"\x00"', b"1\x0c", b"\xc2\xa01", b"\xe2\x80\xa81", b"[1,2", b'{"a":[1,2}',
    b"]", b"}", b'"',
    b"1" * 4000, b"1" * 4001, b"-" + b"1" * 4000, b"1." + b"1" * 3998, b"1." + b"1" * 3999,
    b'"' + b"1" * 5000 + b'"',
    b'{"a":1e5,"b":1E+5,"n":-1.5e-5}', b'{"a":1e999,"b":-1e999}', b'{"a":123456789012345678901234567890}',
    b'{"a":0.30000000000000004,"b":5e-324}', b'{"a":1.7976931348623157e308,"b":1.7976931348623159e308}',
    deep("[", "]", 190), deep("[", "]", 191), deep('{"a":', "}", 190), deep('{"a":', "}", 191),
    deep('[{"a":', "}]", 95), deep('[{"a":', "}]", 96), deep("[", "]", 250), b"[" * 500, b"]" * 300,
    b'{"a":"' + b"[{" * 300 + b'"}', b'{"a":[' + b",".join([b"[]"] * 400) + b"]}",
    b'{"' + b"a" * 49_999 + b'":1,"a":2}', b'{"' + b"a" * 50_000 + b'":1}',
    b'{"' + b"\\u0061" * 49_999 + b'":1}',
    b'{"' + b"\\u0061" * 50_000 + b'":1}', b'{"a":"' + b"x" * 200_000 + b'"}',
    '{"a":"\uffff","b":"\U0010ffff","é😀":"é"}'.encode(), b'{"it\'s":1,"q\\"t":2,"\\\\":3,"":4,"sku no":5}',
    b'{"a":true,"b":false,"c":{"d":null},"e":[null,{"f":"1"}]}', b'{"a":"true","b":"5","n":5,"c":{"d":"{"}}',
]  # fmt: skip


def frame_of(spark: SparkSession, events: list[dict[str, Any]]) -> Any:
    rows = []
    for number, event in enumerate(events):
        attributes = event["attributes"]
        extensions = {k: v for k, v in attributes.items() if k not in CORE and k != "specversion"}
        core = [attributes.get(name) for name in CORE]
        data, key = event["data"], event["key"]
        rows.append(
            (number, *core, extensions, data and bytearray(data) if data != b"" else bytearray(), key)
        )
    return spark.createDataFrame(rows, SCHEMA)


def as_event(event: dict[str, Any]) -> CloudEvent:
    data = absent if event["data"] is None else event["data"]
    return CloudEvent.unchecked(event["attributes"], data, sound=False)


def compare_expressions(spark: SparkSession, nodes: list[Node], events: list[dict[str, Any]]) -> int:
    """Evaluate all nodes over all events by both engines; gives the number of values compared."""
    from penstock.pipeline.columns.binding import Binding
    from penstock.pipeline.columns.jsontext import with_paths
    from penstock.pipeline.columns.program import Program

    binding = Binding()
    paths = frozenset().union(*map(paths_read, nodes))
    frame = with_paths(frame_of(spark, events), binding, paths)
    program = Program(binding)
    columns = [program.add(node).alias(f"v{index}") for index, node in enumerate(nodes)]
    rows = program.apply(frame).select("n", binding.unreadable, *columns).orderBy("n").collect()
    assert len(rows) == len(events)
    for row, event in zip(rows, events, strict=True):
        data = read_data(as_event(event))
        assert row[1] is (data is unreadable), event
        scope = Scope(event["attributes"], None if data is unreadable else data)
        for index, node in enumerate(nodes):
            expected, found = evaluate(node, scope), row[index + 2]
            assert found == expected and type(found) is type(expected), (
                explain(node),
                event,
                found,
                expected,
            )
    return len(rows) * len(nodes)


SLOW = settings(max_examples=3, phases=[Phase.explicit, Phase.generate], deadline=None)


@SLOW
@given(seed=st.integers(0, 2**32))
def test_random_expressions_on_random_events(spark: SparkSession, seed: int) -> None:
    maker = Maker(seed)
    types = [Type.BOOLEAN] * 12 + [Type.TEXT] * 5 + [Type.TIME]
    nodes = [maker.node(type_, maker.pick([1, 2, 3])) for type_ in types]
    nodes = [node for node in nodes if not isinstance(node, Null)]
    for node in nodes:
        check(node)
    events = [maker.event() for _ in range(200)]
    assert compare_expressions(spark, nodes, events) > 1_000


def same_leaf(found: str | None, expected: str | None) -> bool:
    """Compare tagged texts: of a container only its bracket counts, and of a number its value."""
    if found is None or expected is None or expected[0] not in "-0123456789{[":
        return found == expected
    if expected[0] in "{[":
        return found[0] == expected
    return read_number(found) == read_number(expected)


def test_json_that_parsers_disagree_about(spark: SparkSession) -> None:
    from penstock.pipeline.columns.binding import Binding, path_column
    from penstock.pipeline.columns.jsontext import with_paths
    from penstock.pipeline.reference.data import member

    binding = Binding()
    attributes = {"id": "1", "source": "/s", "type": "t", "datacontenttype": "application/json"}
    events = [{"attributes": attributes, "data": raw, "key": None} for raw in CORPUS]
    frame = with_paths(frame_of(spark, events), binding, PATHS)
    rows = frame.select(binding.unreadable, *map(path_column, PATHS), "n").orderBy("n").collect()
    readable = 0
    for row, event in zip(rows, events, strict=True):
        data = read_data(as_event(event))
        assert row[0] is (data is unreadable), event["data"][:80]
        if data is not unreadable:
            readable += 1
            for found, path in zip(row[1:], PATHS, strict=False):
                assert same_leaf(found, tagged(member(data, path))), (event, path, found)
    assert 30 < readable < len(CORPUS) - 30


def test_numbers_read_from_every_text(spark: SparkSession) -> None:
    maker = Maker(7)
    numbers = [*TEXTS, *NUMBERS]
    for _ in range(400):
        digits = "".join(maker.pick("0123456789") for _ in range(maker.pick([1, 5, 19, 20, 25])))
        fraction = "." + "".join(maker.pick("0012345") for _ in range(maker.pick([1, 9, 18, 19, 30])))
        exponent = maker.pick(["", "", f"e{maker.random.randint(-40, 40)}", "E+007", "e-0999", "e1000"])
        numbers.append(
            maker.pick(["", "-"]) + (digits.lstrip("0") or "0") + maker.pick(["", fraction]) + exponent
        )
    attributes = {"id": "1", "source": "/s", "type": "t", "datacontenttype": "application/json"}
    events = [{"attributes": {**attributes, "xa": text}, "data": None, "key": None} for text in numbers]
    number = Call("number_of_text", (Attribute("xa"),))
    bounds = [Number(Decimal(text)) for text in ("0", "1", "-12.5", "9999999999999999999", "0.1")]
    nodes: list[Node] = [
        Call("text_of_number", (number,)),
        IsNull(number),
        *(Compare(operator, number, bound) for operator in Comparison for bound in bounds),
        *(Compare(Comparison.EQUAL, Call("round", (number, Number(Decimal(n)))), number) for n in (0, 6, 17)),
        *(
            Call("text_of_number", (Arithmetic(operator, number, bound),))
            for operator in ArithmeticOperator
            for bound in bounds
        ),
        Call("text_of_number", (Arithmetic(ArithmeticOperator.MULTIPLY, number, number),)),
        Call("text_of_number", (Call("quotient", (number, Number(Decimal("0.7")))),)),
        *(Call("text_of_number", (Call(name, (number,)),)) for name in ("abs", "floor", "ceil", "truncate")),
    ]
    assert compare_expressions(spark, nodes, events) > 10_000


def test_times_read_from_every_text(spark: SparkSession) -> None:
    maker = Maker(11)
    texts = list(TEXTS)
    for _ in range(500):
        year = maker.pick(["0001", "1582", "1969", "2024", "2023", "9999", "0000"])
        month, day, hour = (maker.random.randint(0, most) for most in (13, 32, 24))
        minute, second = maker.pick(["00", "59", "60"]), maker.pick(["00", "59", "60"])
        zone = maker.pick(["Z", "z", "+00:00", "-08:00", "+23:59", "-23:59", "+24:00", "", "+0100"])
        fraction = maker.pick(["", ".", ".1", ".123456", ".1234567899"])
        date, clock = f"{year}-{month:02}-{day:02}", f"{hour:02}:{minute}:{second}"
        texts.append(f"{date}{maker.pick('TTTt ')}{clock}{fraction}{zone}")
    attributes = {"id": "1", "source": "/s", "type": "t"}
    events = [{"attributes": {**attributes, "xa": text}, "data": None, "key": None} for text in texts]
    moment = Call("time_of_text", (Attribute("xa"),))
    parts = ["year", "month", "day", "hour", "minute", "second", "unix_seconds", "unix_millis", "unix_micros"]
    nodes: list[Node] = [moment, Call("text_of_time", (moment,))]
    nodes += [Call("text_of_number", (Call(part, (moment,)),)) for part in parts]
    nodes += [Call("shift", (moment, Number(Decimal(by)))) for by in ("1", "-86400000000", "1e17", "0.5")]
    assert compare_expressions(spark, nodes, events) > 8_000


SQL = [
    "type = 'order-17' AND data.a >= 1",
    "data.a >= 100 OR data.b = 'abc' OR data.c.d IS NULL",
    "NOT data.a BETWEEN 0 AND 10 AND subject LIKE 'a%'",
    "(data.e[0] IN (1, 2)) IS NULL",
    "data.e[0] IN (1, 2.5, NULL)",
    "data.a = data.b",
    "data.`sku no` != data['é😀']",
    "xa < 5 AND xb",
    "time >= '2000-01-01' AND time < TIMESTAMP '2030-01-01T00:00:00Z' - INTERVAL 90 MINUTES",
    "lower(subject) || '-' || data.a LIKE '%-1'",
    "coalesce(data.a, data.b, 'none') = 'none'",
    "CASE WHEN data.a > 1 THEN 'big' WHEN data.a IS NULL THEN 'none' ELSE 'small' END = 'none'",
    "CAST(data.a AS INT) % 2 = 0",
    "CAST(data.b AS DECIMAL(10,2)) / 3 > 0.5",
    "year(time) = 2024 AND length(trim(subject)) > 0",
    "if(xa = 'true', data.a, data.b) = 1",
]


def test_sql_text(spark: SparkSession) -> None:
    maker = Maker(3)
    nodes = [parse_sql(text) for text in SQL]
    assert compare_expressions(spark, nodes, [maker.event() for _ in range(300)]) > 4_000


def random_plan(maker: Maker, number: int) -> RoutePlan:
    names = maker.random.sample(["subject", "type", "partitionkey", "xa", "new"], maker.pick([0, 1, 2]))
    assignments = [Assignment(name, maker.node(Type.TEXT, maker.pick([0, 1]))) for name in names]
    assignments = [part for part in assignments if not isinstance(part.value, Text)]
    if maker.random.random() < 0.3:
        assignments.append(Assignment("time", maker.node(Type.TIME, 1)))
    guard: Node = Compare(Comparison.NOT_EQUAL, Attribute("type"), Text(maker.pick(["a", "zz"])))
    body = maker.node(Type.BOOLEAN, 2)
    return RoutePlan(
        name=f"route-{number}",
        where=maker.pick([guard, body, And((guard, body)), Boolean(True), Boolean(True)]),
        set=tuple(assignments),
        drop=maker.pick([(), (), ("xb",)]),
        rename=maker.pick([(), (), (("xc", "xd"),), (("subject", "xb"),)]) if "subject" not in names else (),
        key=maker.pick([*SimpleKey, ExpressionKey(maker.node(Type.TEXT, 1))]),
        mode=maker.pick(list(Mode)),
        tombstones=maker.pick(list(Tombstones)),
        expiry=maker.pick(list(Expiry)),
    )


@SLOW
@given(seed=st.integers(0, 2**32))
def test_random_routes_on_random_events(spark: SparkSession, seed: int) -> None:
    from pyspark.sql import functions as F

    from penstock.pipeline.columns.binding import Binding
    from penstock.pipeline.columns.program import Program
    from penstock.pipeline.columns.route import compile_route, prepare

    maker = Maker(seed)
    plans = [random_plan(maker, number) for number in range(4)]
    events = [maker.event() for _ in range(200)]
    binding = Binding()
    frame = prepare(frame_of(spark, events), binding, plans).withColumn(
        "now", F.unix_micros(F.current_timestamp())
    )
    program = Program(binding)
    columns, names = [], []
    for index, plan in enumerate(plans):
        route = compile_route(plan, program)
        names.append(list(route.attributes))
        columns.append(
            F.struct(
                route.verdict.alias("verdict"),
                F.struct(*(column.alias(name) for name, column in route.attributes.items())).alias(
                    "attributes"
                ),
                route.key.alias("key"),
                route.null_value.alias("null_value"),
            ).alias(f"r{index}")
        )
    rows = program.apply(frame).select("n", "now", *columns).orderBy("n").collect()
    kept = 0
    for row, event in zip(rows, events, strict=True):
        for index, plan in enumerate(plans):
            routed = route_event(plan, as_event(event), key=event["key"], now=row["now"])
            found = row[f"r{index}"]
            story = (plan.explain(), event, found)
            assert tuple(found["verdict"]) == (routed.verdict.decision, routed.verdict.code), story
            for output in routed.outputs:
                kept += 1
                expected = {name: output.event.get(name) for name in names[index]}
                assert found["attributes"].asDict() == expected, story
                key = None if found["key"] is None else bytes(found["key"])
                assert key == output.key, story
                assert found["null_value"] is output.null_value, story
    assert kept > 0
