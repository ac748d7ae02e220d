"""Functions in their real process: what becomes of each event, whatever the function does."""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from penstock.errors import PipelineError
from penstock.events import CloudEvent
from penstock.pipeline.functions.delivery import Retries
from penstock.pipeline.functions.invoker import FunctionInvoker
from penstock.pipeline.functions.process import Bounds, process_of
from penstock.pipeline.functions.receipts import TYPE, Receipts
from penstock.pipeline.plan.identity import derived_id
from penstock.pipeline.ports import Invoked, Routed, Target

Make = Callable[..., FunctionInvoker]
MakeRouted = Callable[..., Routed]


def starts(invoker: FunctionInvoker) -> int:
    return process_of(invoker.settings, invoker.bounds).starts


def some(routed: MakeRouted, bad: int = 13, count: int = 20) -> list[Routed]:
    return [routed(number, {"bad": number == bad}) for number in range(count)]


def codes(results: list[Invoked]) -> dict[int, str]:
    return {number: str(result.code) for number, result in enumerate(results) if result.code is not None}


# What a function emits


def test_an_event_that_is_not_changed_keeps_its_id_key_and_headers(invoker: Make, routed: MakeRouted) -> None:
    given = routed(1)
    (result,) = invoker("same")([given])
    assert result.events == (given.event,)
    assert (result.keys, result.headers) == (None, None)
    assert (result.code, result.attempts, result.receipt) == (None, 1, None)


def test_a_transformed_event_has_a_derived_id_and_says_where_it_came_from(
    invoker: Make, routed: MakeRouted
) -> None:
    (result,) = invoker("enlarge")([routed(1)])
    (event,) = result.events
    assert event.id == derived_id("r", "/shop", "e1", 0)
    assert (event.get("causationid"), event.get("size")) == ("e1", "large")


def test_the_id_comes_from_the_event_as_it_was_read(invoker: Make, routed: MakeRouted) -> None:
    given = routed(1)
    changed = given.event.replace({"id": derived_id("r", "/shop", "e1"), "causationid": "e1", "source": "/x"})
    (same,) = invoker("same")(
        [Routed(event=changed, key=None, headers=(), record=given.record, origin=given.origin)]
    )
    (more,) = invoker("enlarge")(
        [Routed(event=changed, key=None, headers=(), record=given.record, origin=given.origin)]
    )
    assert [event.id for event in (*same.events, *more.events)] == [derived_id("r", "/shop", "e1")] * 2


def test_only_another_partitionkey_is_no_change(invoker: Make, routed: MakeRouted) -> None:
    (result,) = invoker("rekey", key_from_partitionkey=True)([routed(1, partitionkey="old")])
    assert [(event.id, event.get("partitionkey")) for event in result.events] == [("e1", "new")]
    assert result.keys == (b"new",)


def test_one_record_may_become_many_each_with_an_id_of_its_own(invoker: Make, routed: MakeRouted) -> None:
    (result,) = invoker("split")([routed(1)])
    ids = [event.id for event in result.events]
    assert ids == ["e1", *(derived_id("r", "/shop", "e1", number) for number in (1, 2, 3))]
    assert [event.type for event in result.events] == ["placed", "placed", "placed", "made"]
    assert result.events[2].json() == {"part": 2}
    assert result.headers is not None
    assert result.headers[3] == (("app", b"x"),)


def test_the_outcomes_of_a_batch(invoker: Make, routed: MakeRouted) -> None:
    wants = ("emit", "dead", "drop", "retry")
    emitted, dead, dropped, retried = invoker("decide")([routed(n, {"want": w}) for n, w in enumerate(wants)])
    assert len(emitted.events) == 1
    assert (dead.code, dead.reason) == ("function-dead", "never")
    assert (dropped.events, dropped.code) == ((), None)
    assert (retried.code, retried.reason, retried.attempts) == ("retries-exhausted", "later", 1)


def test_a_function_may_add_a_header(invoker: Make, routed: MakeRouted) -> None:
    (result,) = invoker("adds_a_header")([routed(1)])
    assert result.events[0].id == "e1"
    assert result.headers == ((("app", b"x"), ("trace", b"t")),)


def test_what_a_function_sees(invoker: Make, routed: MakeRouted) -> None:
    (result,) = invoker("looks")([routed(5)])
    event = result.events[0]
    assert event.get("seen") == str(("orders", "orders/3/5", "x", "1970-01-01T00:00:01+00:00"))
    assert (event.get("list"), event.get("listid")) == ("class=list;kind=records", "r/orders/3/5+1")


def test_attributes_are_parsed_once_and_json_gives_a_value_of_its_own(
    invoker: Make, routed: MakeRouted
) -> None:
    results = invoker("counts_parses")([routed(n, {"a": 1, "b": n}) for n in range(3)])
    assert [result.events[0].integer("parses") for result in results] == [2, 2, 2]
    assert results[2].events[0].get("asked") == "(1, 2, 1)"


def test_a_key_function_sees_the_output(invoker: Make, routed: MakeRouted) -> None:
    make = invoker("enlarge", key="key_of")
    results = make([routed(n, keyed=word) for n, word in enumerate(("text", "bytes", "none"))])
    assert [result.keys for result in results] == [
        (f"k-{derived_id('r', '/shop', 'e0')}".encode(),),
        (b"\xff",),
        (None,),
    ]


def test_a_key_function_alone_leaves_the_event_as_it_is(invoker: Make, routed: MakeRouted) -> None:
    (result,) = invoker(None, key="key_of")([routed(1)])
    assert (result.events[0].id, result.keys) == ("e1", (b"k-e1",))
    (thrown,) = invoker(None, key="throwing_key")([routed(1)])
    assert thrown.code == "function-error"
    assert thrown.reason.startswith("Traceback (most recent call last):\n  File")
    assert "user_functions.py" in thrown.reason.splitlines()[1]
    (wrong,) = invoker(None, key="bad_key")([routed(1)])
    assert (wrong.code, wrong.reason) == (
        "function-result",
        "the key is a int; next: return bytes, text or None",
    )


# What a function does wrong


MISDEEDS = {
    "throw": ("function-error", "ValueError: cannot take e"),
    "leave": ("function-error", "SystemExit: 3"),
    "end": ("function-exit", "ended with exit code 3"),
    "die": ("function-exit", "ended by SIGABRT"),
    "return an object": ("function-result", "returned object for record 0"),
    "emit what is no JSON": ("function-error", "cannot be written as JSON"),
    "break a rule": ("function-result", "'Not-Legal' is not legal"),
    "flood": ("function-output", "bytes of output; the limit is 1048576"),
    "forge": ("function-exit", "its answer cannot be read"),
}


def test_only_the_records_that_are_to_blame_are_dead(invoker: Make, routed: MakeRouted) -> None:
    bad = {5 * number + 3: misdeed for number, misdeed in enumerate(MISDEEDS)}
    results = invoker("misbehaves")([routed(number, {"bad": bad.get(number)}) for number in range(60)])
    assert codes(results) == {number: MISDEEDS[misdeed][0] for number, misdeed in bad.items()}
    for number, misdeed in bad.items():
        assert MISDEEDS[misdeed][1] in results[number].reason
    assert all(len(result.events) == 1 for number, result in enumerate(results) if number not in bad)


@pytest.mark.parametrize(
    ("function", "code", "reason"),
    [
        ("throws_at_the_end", "function-error", "ValueError: one of them is bad"),
        ("forgets", "function-result", "returned 0 outcomes for 1 records"),
    ],
)
def test_a_record_is_found_where_the_whole_batch_fails(
    invoker: Make, routed: MakeRouted, function: str, code: str, reason: str
) -> None:
    results = invoker(function)(some(routed))
    assert codes(results) == {13: code}
    assert reason in results[13].reason


def test_a_traceback_starts_in_the_function(invoker: Make, routed: MakeRouted) -> None:
    (result,) = invoker("misbehaves")([routed(1, {"bad": "throw"})])
    assert "user_functions.py" in result.reason.splitlines()[1]
    assert result.reason.splitlines()[-1] == "ValueError: cannot take e1 ?"


@pytest.mark.parametrize("function", ["never_ends", "returns_nothing"])
def test_a_function_that_answers_nothing_useful_kills_its_records_only(
    invoker: Make, routed: MakeRouted, function: str
) -> None:
    results = invoker(function)(some(routed, count=3))
    assert codes(results) == dict.fromkeys(range(3), "function-result")


def test_a_function_that_hangs_is_ended_and_found_in_two_calls(invoker: Make, routed: MakeRouted) -> None:
    hanging = invoker("hangs", bounds=Bounds(seconds=1))
    results = hanging(some(routed))
    assert codes(results) == {13: "function-timeout"}
    assert starts(hanging) == 3


def test_a_function_that_eats_memory_is_ended(invoker: Make, routed: MakeRouted) -> None:
    results = invoker("eats", bounds=Bounds(seconds=20, megabytes=150))(some(routed, count=15))
    assert codes(results) == {13: "function-memory"}
    assert "150 megabytes" in results[13].reason


def test_a_leak_from_call_to_call_costs_a_new_process_and_no_event(invoker: Make, routed: MakeRouted) -> None:
    leaking = invoker("leaks", batch=1, bounds=Bounds(seconds=20, megabytes=150))
    results = leaking([routed(n) for n in range(8)])
    assert codes(results) == {}
    assert len({result.events[0].get("pid") for result in results}) == starts(leaking) > 1


@pytest.mark.parametrize(
    ("number", "name"),
    [(signal.SIGKILL, "SIGKILL"), (signal.SIGRTMIN + 6, f"signal {signal.SIGRTMIN + 6}")],
)
def test_a_process_that_was_killed_between_two_calls_costs_no_event(
    invoker: Make, routed: MakeRouted, caplog: pytest.LogCaptureFixture, number: int, name: str
) -> None:
    make = invoker("says_its_pid", batch=1, bounds=Bounds(seconds=20 + number))
    (first,) = make([routed(1)])
    child = int(str(first.events[0].get("pid")))
    os.kill(child, number)
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    (second,) = make([routed(2)])
    assert (second.code, starts(make)) == (None, 2)
    assert f"between two calls the process was ended by {name}" in caplog.text


def test_what_a_function_started_ends_with_it(invoker: Make, routed: MakeRouted, tmp_path: Path) -> None:
    noted = tmp_path / "pid"
    (result,) = invoker("starts_another", granted={"CALLS": str(noted)})([routed(1)])
    assert (result.code, result.reason) == ("function-exit", "the process ended with exit code 1")
    assert is_gone(int(noted.read_text()))


def is_gone(pid: int, seconds: float = 30) -> bool:
    """Wait until a process that is not our child has ended, reaped or not."""
    end = time.monotonic() + seconds
    while psutil.pid_exists(pid) and time.monotonic() < end:
        with contextlib.suppress(psutil.NoSuchProcess):
            if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
                return True
        time.sleep(0.05)
    return not psutil.pid_exists(pid)


def test_the_process_of_a_function_loads_nothing_heavy(invoker: Make, routed: MakeRouted) -> None:
    (result,) = invoker("says_what_it_imported")([routed(1)])
    assert result.events[0].get("heavy") == "none"


def test_the_process_ends_with_its_worker_also_while_the_function_hangs(tmp_path: Path) -> None:
    noted = tmp_path / "pid"
    (tmp_path / "hanging.py").write_text(
        f"import os, time\nopen({str(noted)!r}, 'w').write(str(os.getpid()))\n"
        "def hang(batch):\n    while True: time.sleep(60)\n"
    )
    code = (
        "from penstock.pipeline.functions.process import *\n"
        f"settings = Settings(route='r', function='hanging:hang', path=({str(tmp_path)!r},))\n"
        "process = FunctionProcess(settings, Bounds(seconds=600))\n"
        "process.check()\nprint('ready', flush=True)\n"
        "event = ({'id': '1', 'source': '/', 'type': 't'}, None, None, False)\n"
        "process.call([(event, (), ('t', 0, 0, 0), ('/', '1'))])"
    )
    worker = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert worker.stdout is not None
    assert worker.stdout.readline() == b"ready\n"
    child = int(noted.read_text())
    assert psutil.pid_exists(child)
    worker.kill()
    worker.wait()
    worker.stdout.close()
    assert is_gone(child)


def test_one_process_serves_all_calls_of_a_route(invoker: Make, routed: MakeRouted) -> None:
    make = invoker("says_its_pid", batch=2)
    results = make([routed(n) for n in range(6)]) + pickle.loads(pickle.dumps(make))([routed(7)])
    assert len({result.events[0].get("pid") for result in results}) == 1
    assert starts(make) == 1


def test_a_module_that_cannot_be_loaded_stops_the_job_with_its_traceback(invoker: Make) -> None:
    with pytest.raises(PipelineError, match="cannot be loaded") as caught:
        invoker("not_there").check()
    assert "has no function not_there" in str(caught.value.why)


# Retries


@pytest.mark.parametrize(
    ("ordering", "calls"),
    [
        ("none", "e0 e1 e2 e3 e0"),
        ("partition", "e0 e1 e2 e3 e0 e1 e2 e3"),
        ("key", "e0 e1 e2 e3 e0 e2"),
    ],
)
def test_a_record_that_is_tried_again_holds_back_what_must_stay_behind_it(
    invoker: Make,
    routed: MakeRouted,
    tmp_path: Path,
    ordering: str,
    calls: str,
) -> None:
    noted = tmp_path / "calls"
    granted = {"CALLS": str(noted)}
    make = invoker("tries", granted=granted, ordering=ordering, retries=Retries(retry=3, delay=0.01))
    events = [routed(n, {"retries": int(n == 0)}, key=b"ab"[n % 2 : n % 2 + 1]) for n in range(4)]
    results = make(events)
    assert noted.read_text().split() == calls.split()
    assert [result.attempts for result in results] == [2, 1, 1, 1]
    assert codes(results) == {}


def test_retries_end(invoker: Make, routed: MakeRouted, tmp_path: Path) -> None:
    make = invoker("tries", granted={"CALLS": str(tmp_path / "calls")}, retries=Retries(retry=2, delay=0.01))
    (result,) = make([routed(1, {"retries": 9})])
    assert (result.code, result.reason, result.attempts) == ("retries-exhausted", "not yet", 3)


# Its environment


def test_a_function_gets_the_variables_that_its_context_grants_and_no_passwords(
    invoker: Make, routed: MakeRouted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KAFKA_PASSWORD", "hunter2")
    monkeypatch.setenv("PYTHON_WORKER_FACTORY_SECRET", "hunter2")
    monkeypatch.setenv("LC_ALL", "C.UTF-8")
    make = invoker("says_its_pid", granted={"REGION": "eu"})
    (result,) = make([routed(1)])
    environment = psutil.Process(int(str(result.events[0].get("pid")))).environ()
    assert "hunter2" not in environment.values()
    assert (environment["REGION"], environment["LC_ALL"]) == ("eu", "C.UTF-8")
    assert "eu" not in repr(make)


# Receipts and logs


@pytest.mark.parametrize(("want", "outcome"), [("emit", "emitted"), ("drop", "dropped"), ("dead", "dead")])
def test_a_receipt_says_what_became_of_the_event(
    invoker: Make, routed: MakeRouted, want: str, outcome: str
) -> None:
    target = Target(topic="done", sink=1)
    make = invoker("decide", receipts=Receipts(pipeline="My shop", route="r", channels={"orderDone": target}))
    (result,) = make([routed(1, {"want": want}, receiptqueue="orderDone")])
    assert result.receipt is not None
    assert result.receipt.target == target
    event = CloudEvent(result.receipt.event.attributes, result.receipt.event.data)
    assert (event.type, event.source, event.get("causationid")) == (TYPE, "/penstock/My%20shop", "e1")
    told: Any = event.json()
    assert (told["id"], told["outcome"], told["attempts"]) == ("e1", outcome, 1)
    assert (told["code"], told["reason"]) == (
        ("function-dead", "never") if want == "dead" else (None, "not wanted" if want == "drop" else "")
    )
    assert told["events"] == (["e1"] if want == "emit" else [])


def test_a_receipt_is_sent_to_channels_of_the_contract_only(
    invoker: Make, routed: MakeRouted, caplog: pytest.LogCaptureFixture
) -> None:
    make = invoker("same", receipts=Receipts(pipeline="shop", route="r", channels={}))
    other, plain = make([routed(1, receiptqueue="elsewhere"), routed(2)])
    assert (other.receipt, other.unfollowed, plain.unfollowed) == (None, True, False)
    assert "'e1' asks for a receipt on 'elsewhere'" in caplog.text
