"""Which settings a session has: what was set wins, ours hold elsewhere, and a session that is there stays."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException

from penstock.errors import PipelineError, Refused, StartupError
from penstock.pipeline.spark import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.parametrize(
    ("quota", "cores"), [("max 100000\n", 8), ("150000 100000\n", 2), ("1000 100000\n", 1), ("", 8)]
)
def test_cores_are_counted_within_the_quota_of_a_container(
    quota: str, cores: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cpu.max").write_text(quota)
    monkeypatch.setattr(session, "_CPU_QUOTA", tmp_path / "cpu.max")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(8), raising=False)
    assert session.slots(2) == (f"local[{2 * cores},4]", {"spark.default.parallelism": str(cores)})


@pytest.mark.parametrize("cores", [1, 2, 16, 64])
@pytest.mark.parametrize("sources", [2, 3, 5, 100])
def test_every_source_has_a_slot_for_each_of_its_tasks(sources: int, cores: int) -> None:
    master, settings = session.slots(sources, cores)
    tasks = int(settings["spark.default.parallelism"])
    assert master == f"local[{sources * tasks},4]"
    assert 1 <= tasks <= cores
    assert sources * tasks <= max(4 * cores, sources)


@pytest.mark.server
def test_the_active_session_is_used_as_it_is(spark: SparkSession) -> None:
    before = settings_of(spark)
    found = session.spark_session(
        "other", master="local[7]", settings={"spark.sql.shuffle.partitions": "9", "spark.x": "y"}
    )
    assert found is spark
    assert settings_of(spark) == before


@pytest.mark.server
def test_the_session_of_queries_is_another_one(spark: SparkSession) -> None:
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    spark.conf.set("spark.sql.ansi.enabled", "false")
    try:
        before = settings_of(spark)
        own = session.query_session(spark, "/a/folder")
        assert settings_of(spark) == before
        assert type(spark).getActiveSession() is spark
        for key, (value, _) in session.QUERY_SETTINGS.items():
            assert own.conf.get(key) == value
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
        spark.conf.unset("spark.sql.ansi.enabled")


@pytest.mark.server
def test_patterns_are_added_to_those_of_spark_itself(spark: SparkSession) -> None:
    """Spark's own patterns stand in the code: they have to be those of the Spark that is installed."""
    jvm = cast("Any", spark)._jvm
    general = getattr(jvm.org.apache.spark.internal.config, "package$")
    own = getattr(general, "MODULE$").SECRET_REDACTION_PATTERN().defaultValueString()
    options = jvm.org.apache.spark.sql.internal.SQLConf.SQL_OPTIONS_REDACTION_PATTERN().defaultValueString()
    assert session.ADDED_PATTERNS["spark.redaction.regex"][0] == own
    assert session.ADDED_PATTERNS["spark.sql.redaction.options.regex"][0] == options


def settings_of(spark: SparkSession) -> tuple[dict[str, str], dict[str, str]]:
    return dict(spark.conf.getAll), dict(spark.sparkContext.getConf().getAll())


def fake_session(**settings: str) -> Any:
    class Conf(dict[str, str]):
        def contains(self, key: str) -> bool:
            return key in self

    conf = Conf({key.replace("_", "."): value for key, value in settings.items()})
    return SimpleNamespace(sparkContext=SimpleNamespace(getConf=lambda: conf))


OPTIONS_PATTERN = "spark.sql.redaction.options.regex"
LOCAL_ONLY = "spark.sql.streaming.checkpointFileManagerClass"


class RuntimeConf(dict[str, str]):
    """The settings of a session; static ones cannot be set."""

    def set(self, key: str, value: str) -> None:
        if key.startswith("spark.static."):
            raise AnalysisException(f"{key} is static")
        self[key] = value

    @property
    def getAll(self) -> dict[str, str]:
        return self


def session_with(**settings: str) -> Any:
    """A session of a program that has set something since it was made."""
    made = fake_session(spark_a="at start")
    made.conf = RuntimeConf({"spark.a": "at start", **settings})
    made.newSession = lambda: SimpleNamespace(conf=RuntimeConf({"spark.a": "at start"}))
    return made


def test_queries_have_what_a_program_has_set_at_run_time() -> None:
    key = "fs.azure.account.key.store.dfs.core.windows.net"
    theirs = session_with(
        **{key: "k", "spark.a": "later", "spark.static.x": "y", "spark.sql.ansi.enabled": "false"}
    )
    before = dict(theirs.conf)
    own = session.query_session(theirs, "/a/folder")
    assert own.conf[key] == "k"
    assert own.conf["spark.a"] == "later"
    assert own.conf["spark.sql.ansi.enabled"] == "true"
    assert LOCAL_ONLY in own.conf
    assert theirs.conf == before
    chosen = session.query_session(session_with(**{LOCAL_ONLY: "theirs"}), "/a/folder")
    assert chosen.conf[LOCAL_ONLY] == "theirs"


@pytest.mark.parametrize("checkpoint", ["hdfs://namenode/checkpoints", "hdfs:/checkpoints"])
def test_a_checkpoint_that_is_not_on_a_local_disk_has_the_file_manager_of_spark(checkpoint: str) -> None:
    assert LOCAL_ONLY not in session.query_session(session_with(), checkpoint).conf


@pytest.mark.parametrize("theirs", [None, "(?i)mine"])
def test_plans_of_queries_show_no_keys_in_whatever_session(theirs: str | None) -> None:
    given = session_with(**({OPTIONS_PATTERN: theirs} if theirs else {}))
    pattern = session.query_session(given, "/a/folder").conf[OPTIONS_PATTERN]
    assert re.search(pattern, "kafka.ssl.keystore.key")
    assert re.search(pattern, "MINE" if theirs else "URL")
    again = session.query_session(session_with(**{OPTIONS_PATTERN: pattern}), "/a/folder")
    assert again.conf.get(OPTIONS_PATTERN) == pattern


@pytest.mark.server
def test_settings_of_a_real_session_are_copied_and_none_comes_back(spark: SparkSession) -> None:
    key = "fs.azure.account.key.store.dfs.core.windows.net"
    theirs = spark.newSession()
    theirs.conf.set(key, "k")
    theirs.conf.set(OPTIONS_PATTERN, "(?i)mine")
    before = settings_of(theirs)
    own = session.query_session(theirs, "/a/folder")
    assert own.conf.get(key) == "k"
    assert re.search(str(own.conf.get(OPTIONS_PATTERN)), "kafka.ssl.keystore.key")
    own.conf.set("spark.sql.shuffle.partitions", "77")
    assert settings_of(theirs) == before


def test_a_master_that_does_not_answer_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark tries for a minute, logs why, and stops the context that it has returned meanwhile."""

    def stopped(context: object) -> None:
        raise Py4JJavaError(
            "Cannot call methods on a stopped SparkContext.", SimpleNamespace(_target_id="o1")
        )

    monkeypatch.setattr("pyspark.sql.SparkSession", stopped)
    with pytest.raises(StartupError) as found:
        session._session(object(), "spark://nobody:7077")
    assert found.value.where == "spark://nobody:7077"
    assert "--master" in str(found.value.next)


@pytest.mark.parametrize(
    ("master", "java", "what"),
    [
        ("spark://nobody:7077", "java.lang.NullPointerException: x", "Spark ended while it started"),
        ("local[2]", "java.lang.NullPointerException: x", "Spark did not start"),
        ("spark://nobody:7077", "java.lang.IllegalArgumentException: x", "Spark did not start"),
    ],
)
def test_a_master_that_ends_while_the_context_is_made_is_named(
    monkeypatch: pytest.MonkeyPatch, master: str, java: str, what: str
) -> None:
    class Thrown(SimpleNamespace):
        _target_id = "o1"

        def __str__(self) -> str:
            return java

    def stopped(conf: object) -> None:
        raise Py4JJavaError("An error occurred", Thrown())

    monkeypatch.setattr("pyspark.SparkContext", stopped)
    with pytest.raises(StartupError) as found:
        session._context(cast("Any", {"spark.master": master}))
    assert found.value.what.startswith(what)


@pytest.mark.server
def test_a_setting_of_sql_that_spark_does_not_take_is_named(spark: SparkSession) -> None:
    conf = spark.sparkContext.getConf().set("spark.sql.shuffle.partitions", "many")
    theirs = SimpleNamespace(
        sparkContext=SimpleNamespace(getConf=lambda: conf), newSession=lambda: refusing(spark)
    )
    with pytest.raises(StartupError) as found:
        session.query_session(cast("Any", theirs), "/a/folder")
    assert "spark.sql.shuffle.partitions" in str(found.value.why)
    assert "\n" not in str(found.value.why)
    assert "--conf" in str(found.value.next)


def refusing(spark: SparkSession) -> SparkSession:
    """Fail as Spark does where the value of a setting was wrong from the start."""
    spark.conf.set("spark.sql.shuffle.partitions", "many")
    return spark


class StartConf(dict[str, str]):
    """A SparkConf that Java has filled with what was set elsewhere; `set` and `get` are Spark's."""

    def __init__(self, _jvm: dict[str, str]) -> None:
        super().__init__(_jvm)

    def set(self, key: str, value: str) -> None:
        self[key] = value

    def setIfMissing(self, key: str, value: str) -> None:
        self.setdefault(key, value)

    def setAppName(self, value: str) -> None:
        self["spark.app.name"] = value


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., dict[str, str]]:
    """Return the settings that a session is made with, by what was set elsewhere; no Java is started."""
    for name in ("PYSPARK_GATEWAY_PORT", "PYSPARK_SUBMIT_ARGS", "PYSPARK_PYTHON", "SPARK_REMOTE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))

    def start(elsewhere: dict[str, str], *, submitted: bool = False, **given: Any) -> dict[str, str]:
        made: list[dict[str, str]] = []

        def context(conf: StartConf) -> None:
            made.append({**conf, "PYTHON": os.environ["PYSPARK_PYTHON"]})

        if submitted:
            monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
        monkeypatch.setattr("pyspark.SparkContext._active_spark_context", None)
        monkeypatch.setattr("pyspark.SparkContext._jvm", elsewhere)
        monkeypatch.setattr("pyspark.SparkConf", StartConf)
        monkeypatch.setattr(session.startup, "start_java", lambda *_, **__: None)
        monkeypatch.setattr(session, "_context", context)
        monkeypatch.setattr("pyspark.sql.SparkSession", lambda context: None)
        session.spark_session(light=True, **given)
        (found,) = made
        return found

    return start


@pytest.mark.parametrize(
    ("master", "submitted", "scopes"),
    [
        ("local[2]", False, {*session.Scope}),
        ("spark://host:7077", False, {session.Scope.ALL, session.Scope.LAUNCHED}),
        ("local[2]", True, {session.Scope.ALL}),
        ("yarn", True, {session.Scope.ALL}),
    ],
)
def test_defaults_hold_in_their_scope_where_nothing_was_set(
    started: Callable[..., dict[str, str]], master: str, submitted: bool, scopes: set[session.Scope]
) -> None:
    expected = {key: each.value for key, each in session.DEFAULTS.items() if each.scope in scopes}
    assert "spark.speculation" in expected
    found = started({"spark.master": master}, submitted=submitted)
    assert {key: value for key, value in found.items() if key in session.DEFAULTS} == expected
    theirs = dict.fromkeys(session.DEFAULTS, "theirs")
    found = started({"spark.master": master, **theirs}, submitted=submitted)
    assert {key: found[key] for key in theirs} == theirs


@pytest.mark.parametrize("submitted", [False, True])
def test_explicit_settings_beat_those_of_the_submit(
    started: Callable[..., dict[str, str]], submitted: bool
) -> None:
    elsewhere = {"spark.master": "local[1]", "spark.log.level": "INFO", "spark.x": "theirs"}
    given = {"spark.log.level": "WARN", "spark.speculation": "true"}
    found = started(elsewhere, submitted=submitted, master="local[2]", settings=given)
    assert {**found, "spark.master": "local[2]", "spark.x": "theirs", **given} == found


@pytest.mark.parametrize("theirs", [None, "(?i)mine"])
def test_patterns_of_redaction_are_added_to_what_is_set(
    started: Callable[..., dict[str, str]], theirs: str | None
) -> None:
    for key, (default, ours) in session.ADDED_PATTERNS.items():
        found = started({"spark.master": "local[1]", **({key: theirs} if theirs else {})})
        assert found[key] == f"{theirs or default}|{ours}"


@pytest.mark.parametrize(
    ("chosen", "setting", "variable", "master", "python"),
    [
        ("chosen", "setting", "variable", "local[1]", "chosen"),
        (None, "setting", "variable", "local[1]", "setting"),
        (None, None, "variable", "local[1]", "variable"),
        (None, None, None, "local[1]", sys.executable),
        (None, None, None, "yarn", "python3"),
    ],
)
def test_the_python_of_the_workers_is_looked_up_in_order(
    started: Callable[..., dict[str, str]],
    monkeypatch: pytest.MonkeyPatch,
    chosen: str | None,
    setting: str | None,
    variable: str | None,
    master: str,
    python: str,
) -> None:
    if variable is not None:
        monkeypatch.setenv("PYSPARK_PYTHON", variable)
    elsewhere = {"spark.master": master, **({"spark.pyspark.python": setting} if setting else {})}
    assert started(elsewhere, worker_python=chosen)["PYTHON"] == python
    assert os.environ.get("PYSPARK_PYTHON") == variable


def test_speculation_is_refused() -> None:
    with pytest.raises(Refused, match=r"spark\.speculation is on") as refused:
        session.query_session(fake_session(spark_speculation=" True"), "folder")
    assert "fences" in str(refused.value.why)
    assert "spark.speculation=false" in str(refused.value.next)


def test_spark_connect_is_refused() -> None:
    remote = type("SparkSession", (), {"__module__": "pyspark.sql.connect.session"})()
    with pytest.raises(PipelineError, match="does not run over Spark Connect"):
        session.query_session(remote, "folder")


@pytest.mark.parametrize(
    ("variables", "settings", "connect"),
    [
        ({}, {}, False),
        ({"SPARK_REMOTE": "sc://host"}, {}, True),
        ({"SPARK_REMOTE": ""}, {}, False),
        ({"SPARK_API_MODE": "connect"}, {}, True),
        ({"SPARK_API_MODE": "connect"}, {"spark.api.mode": "classic"}, False),
        ({}, {"spark.api.mode": "CONNECT"}, True),
        ({}, {"spark.remote": "sc://host"}, True),
        ({"SPARK_CONNECT_MODE_ENABLED": "1"}, {}, True),
    ],
)
def test_what_asks_for_spark_connect(
    variables: dict[str, str], settings: dict[str, str], connect: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("SPARK_REMOTE", "SPARK_API_MODE", "SPARK_CONNECT_MODE_ENABLED"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert session.is_connect(settings) is connect
