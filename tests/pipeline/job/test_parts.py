"""The parts of a job without servers: groups, options of the source, failures, metrics."""

from __future__ import annotations

import json
import logging
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from threading import Event
from time import monotonic, sleep
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.config import MASK, Secret, Security, load
from penstock.config.secret import Reference
from penstock.contract.credentials import Connection
from penstock.errors import ClusterError, ConfigError, JobFailed, PenstockError, PortTaken, UsageError
from penstock.pipeline.assembly import Source, sources_of, stage_of
from penstock.pipeline.compile import Pipeline, check_pipeline
from penstock.pipeline.counters import COUNTERS
from penstock.pipeline.functions.invoker import FunctionInvoker
from penstock.pipeline.functions.process import Settings
from penstock.pipeline.functions.receipts import Receipts
from penstock.pipeline.job import Job, JobOptions, Progress
from penstock.pipeline.job.failure import failure, is_away
from penstock.pipeline.job.fused import _slots
from penstock.pipeline.job.groups import Committer, group_of
from penstock.pipeline.job.metrics import Metrics
from penstock.pipeline.job.pages import Answer, serve
from penstock.pipeline.job.progress import listener
from penstock.pipeline.job.query import RunningQuery, finish
from penstock.pipeline.job.restarts import AWAY_PAUSE, AwayFailure, Restarts
from penstock.pipeline.job.sources import reader_options
from penstock.pipeline.job.survey import Survey, settled, survey
from penstock.pipeline.ports import Target

SHOP = Path(__file__).parents[3] / "examples" / "shop"
PASSWORD = "pass-word-7"
CONTEXT = f"""contexts:
  t:
    servers:
      kafka:
        address: k:9093
        security: {{username: u, password: {PASSWORD}, protocol: sasl_ssl, mechanism: scram-sha-512}}
"""


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    (tmp_path / "penstock.yaml").write_text(CONTEXT)
    text = "routes: {r: {receive: onOrderPlaced, send: publishLargeOrder, ordering: none}}"
    context = load(start=tmp_path).context()
    found = check_pipeline(SHOP / "pipeline.yaml", raw=text.encode(), context=context).pipeline
    assert found is not None
    return found


@pytest.fixture
def source(pipeline: Pipeline) -> Source:
    (found,) = sources_of(pipeline)
    return found


def test_the_group_is_the_one_that_the_contract_names(source: Source, pipeline: Pipeline) -> None:
    assert group_of(source, pipeline, None) == "shop-orders"
    assert group_of(source, pipeline, "shop-orders") == "shop-orders"


def test_a_group_that_the_contract_does_not_allow_is_refused(source: Source, pipeline: Pipeline) -> None:
    with pytest.raises(UsageError, match="does not allow the group mine") as caught:
        group_of(source, pipeline, "mine")
    assert "shop-orders" in (caught.value.next or "")


class Admin:
    """Takes commits, or is away; may hold one up."""

    def __init__(self) -> None:
        self.working = True
        self.error: PenstockError = ClusterError("no")
        self.free = Event()
        self.free.set()
        self.commits: list[int] = []
        self.attempts = 0

    def commit(self, group: str, topic: str, offsets: Any) -> None:
        assert self.free.wait(20)
        self.attempts += 1
        if not self.working:
            raise self.error
        self.commits.append(offsets[0])

    def until(self, check: Callable[[], bool]) -> None:
        end = monotonic() + 20
        while not check():
            assert monotonic() < end
            sleep(0.005)


def committing(admin: Admin) -> Committer:
    return Committer(admin, "g", "t", pause=0.01)  # type: ignore[arg-type]


def test_a_commit_holds_nobody_up_and_only_the_newest_counts() -> None:
    admin = Admin()
    committer = committing(admin)
    admin.free.clear()
    for offset in range(100):
        committer.commit({0: offset})
    admin.free.set()
    committer.close()
    assert admin.commits[-1] == 99
    assert len(admin.commits) <= 3


@pytest.mark.parametrize("error", [ClusterError("no"), ConfigError("no certificate")])
def test_a_commit_that_fails_is_told_once_and_tried_again(
    caplog: pytest.LogCaptureFixture, error: PenstockError
) -> None:
    admin = Admin()
    admin.error = error
    committer = committing(admin)
    with caplog.at_level(logging.INFO):
        admin.working = False
        committer.commit({0: 1})
        admin.until(lambda: admin.attempts > 5)
        admin.working = True
        admin.until(lambda: admin.commits == [1])
        committer.close()
    assert [each.levelname for each in caplog.records] == ["WARNING", "INFO"]
    assert "back after" in caplog.records[-1].getMessage()


def test_the_end_of_a_job_waits_for_the_last_commit_and_not_for_ever(
    caplog: pytest.LogCaptureFixture,
) -> None:
    admin = Admin()
    committer = committing(admin)
    admin.free.clear()
    committer.commit({0: 7})
    began = monotonic()
    committer.close(0.1)
    assert monotonic() - began < 5
    assert "the last progress is not committed to group g" in caplog.text
    admin.free.set()
    committing(admin).close()


def test_the_source_is_read_with_what_the_contract_says(source: Source) -> None:
    chosen = reader_options(source, JobOptions(), group="g", on_data_loss="stop")
    assert chosen["failOnDataLoss"] == "true"
    assert int(chosen["maxOffsetsPerTrigger"]) >= 200_000
    assert chosen["kafka.client.id"] == "order-service"
    assert PASSWORD not in str(chosen)
    # A partition is read by one task, whatever the ordering, and what was aborted is not read.
    assert (chosen.get("minPartitions"), chosen["kafka.isolation.level"]) == (None, "read_committed")
    going_on = reader_options(source, JobOptions(), group=None, on_data_loss="continue")
    assert going_on["failOnDataLoss"] == "false"


def test_a_stage_knows_what_the_topics_take(source: Source, pipeline: Pipeline) -> None:
    limits = {(0, "orders.large"): 5_000_000, (0, "orders.dead"): 40_000_000}
    compacted = frozenset({(0, "orders.large")})
    found = Survey(cluster_id=None, topic_id=None, earliest={}, latest={}, limits=limits, compacted=compacted)
    stage = settled(stage_of(source, pipeline), found, 1)
    assert [target.compacted for target in (*stage.routes[0].targets, stage.dead)] == [True, False]
    assert [target.limit for target in stage.routes[0].targets] == [5_000_000]
    assert stage.dead.limit == 40_000_000


class Everything:
    """A cluster that has every topic, with these settings."""

    def __init__(self, **settings: str) -> None:
        self._settings = {name: SimpleNamespace(value=value) for name, value in settings.items()}

    def client(self, *_: object) -> Everything:
        return self

    def cluster(self, topics: list[str]) -> Any:
        return SimpleNamespace(topics=dict.fromkeys(topics), hidden=())

    def settings(self, topics: list[str]) -> Any:
        return dict.fromkeys(topics, self._settings)

    def __getattr__(self, name: str) -> Any:
        return lambda *_: None


@pytest.mark.parametrize(
    ("policy", "is_compacted"),
    [("compact", True), ("delete,compact", True), ("compact,delete", True), ("delete", False), ("", False)],
)
def test_which_topics_are_compacted(
    source: Source, pipeline: Pipeline, policy: str, is_compacted: bool
) -> None:
    admin: Any = Everything(**{"cleanup.policy": policy, "max.message.bytes": "1000"})
    found = survey(source, stage_of(source, pipeline), admin)
    assert ((0, "orders.large") in found.compacted) is is_compacted
    assert found.limits[0, "orders.large"] == 1000


def test_receipts_go_only_to_topics_that_are_there(source: Source, pipeline: Pipeline) -> None:
    channels = {"a": Target(topic="there", sink=1), "b": Target(topic="gone", sink=1)}
    receipts = Receipts(pipeline="p", route="r", channels=channels)
    stage = stage_of(source, pipeline)
    invoker = FunctionInvoker(settings=Settings(route="r", function="m:f"), receipts=receipts)
    stage = replace(stage, routes=(replace(stage.routes[0], invoker=invoker),))
    present = frozenset({(0, "there")})
    found = Survey(cluster_id=None, topic_id=None, earliest={}, latest={}, limits={}, present=present)
    kept = settled(stage, found, 1).routes[0].invoker
    assert isinstance(kept, FunctionInvoker)
    assert kept.receipts is not None
    assert list(kept.receipts.channels) == ["a"]


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("org.apache.kafka...RecordTooLargeException: 2000 bytes", "too large"),
        ("Topic x not present in metadata after 30000 ms.", "not there any more"),
        ("TopicAuthorizationException: Not authorized", "may not"),
        ("Some data may have been lost: OffsetOutOfRangeException", "deleted before"),
        ("TimeoutException: Expiring 3 record(s)", "in time"),
        (
            "java.io.IOException: DestHost:destPort localhost:8020 , LocalHost:localPort driver/127.0.0.1:0. "
            "Failed on local exception: java.io.IOException: AccessControlException: "
            "Client cannot authenticate via:[TOKEN, KERBEROS]",
            "login of this job at the file system of the checkpoint has run out",
        ),
        (
            'Permission denied: user=orders, access=WRITE, inode="/ck/s/offsets":root:supergroup:drwxr-xr-x',
            "may not write the checkpoint",
        ),
        (
            "org.apache.hadoop.hdfs.protocol.NSQuotaExceededException: The NameSpace quota (directories and "
            "files) of directory /ck is exceeded: quota=6 file count=7",
            "no room for the checkpoint",
        ),
        (
            "org.apache.hadoop.hdfs.protocol.DSQuotaExceededException: The DiskSpace quota of / is exceeded",
            "no room for the checkpoint",
        ),
        ("java.io.IOException: No space left on device", "disk is full"),
        ("OSError: [Errno 28] No space left on device", "disk is full"),
        ("something nobody knows", "the job stopped"),
    ],
)
def test_failures_are_told_in_our_words(text: str, what: str, source: Source) -> None:
    found = failure(RuntimeError(f"{text}\n\tat org.apache.X(Y.java:1)"), source.name, source.connections)
    assert isinstance(found, JobFailed)
    assert what in found.what
    assert "Y.java" not in str(found)
    assert found.next


@pytest.mark.parametrize(
    ("text", "goes_on"), [("${file:password}", True), ("${env:PASSWORD}", False), ("secret", False)]
)
def test_a_password_that_is_refused_is_being_changed_if_it_comes_from_a_file(
    text: str, goes_on: bool, tmp_path: Path
) -> None:
    refused = failure(RuntimeError("the broker refuses a password that worked before"), "s", {})
    secret = Secret(Reference(text, "penstock.yaml", tmp_path))
    for security in ({"password": secret, "token": None}, {"password": None, "token": secret}):
        connection: Any = SimpleNamespace(security=SimpleNamespace(**security))
        assert is_away(refused, {"kafka": connection}) is goes_on


@pytest.mark.parametrize(
    "why",
    [
        "TopicBacklogQuotaExceededException: Cannot create producer on topic with backlog quota exceeded",
        "PersistenceException: java.io.IOException: No space left on device",
    ],
)
def test_a_broker_that_is_full_is_waited_for(why: str, source: Source) -> None:
    """It is not the file system of the checkpoint, nor a disk of Spark."""
    refused = f"penstock.errors.Unreachable: Pulsar refused; at p:1; {why}; next: consume the backlog"
    found = failure(_of_a_task(refused), source.name, source.connections)
    assert is_away(found, source.connections)
    noted: list[str] = []
    restarts = Restarts(noted.append, max_failures=3, has_end=False)
    for _ in range(2):
        assert restarts.next_start("s", AwayFailure.of(found), others_go_on=False) == AWAY_PAUSE
    (note,) = noted
    assert f"trying again until it does: Pulsar refused; at p:1; {why}" in note


def test_no_password_is_in_a_failure(source: Source) -> None:
    found = failure(RuntimeError(f'jaas username="u" password="{PASSWORD}";'), "s", source.connections)
    assert PASSWORD not in str(found)


def connected(**security: Any) -> Any:
    """A connection with these credentials, as a context gives it."""
    return Connection(address="k:1", tls=True, mechanism="PLAIN", security=Security(username="u", **security))


def test_no_token_is_in_a_failure() -> None:
    token = "eyJhbGciOi.token-7"
    connections = {"pulsar": connected(token=Secret(token)), "kafka": connected(password=Secret(""))}
    found = failure(RuntimeError(f"the broker refuses token:{token} of u"), "s", connections)
    assert found.why == f"the broker refuses token:{MASK} of u"


def _of_a_task(last: str) -> RuntimeError:
    """What Spark tells of a task whose Python raised."""
    return RuntimeError(
        "[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: Job aborted due to stage "
        "failure: Task 0 in stage 3.0 failed 4 times, most recent failure: Lost task 0.3 in stage 3.0 (TID 9)"
        " (127.0.0.1 executor 1): org.apache.spark.api.python.PythonException: Traceback (most recent call "
        f'last):\n  File "engine.py", line 9, in run_ranges\n    with Cluster(settings)\n{last}\n\tat X(Y:1)'
    )


def test_certificates_that_a_worker_lacks_are_told() -> None:
    """They are on the driver, which has used them."""
    found = failure(
        _of_a_task(
            "penstock.errors.ConfigError: the certificate files cannot be used; at /etc/tls/ca.pem; No such "
            "file or directory; next: correct ca_file, cert_file, key_file or key_password of this server"
        ),
        "s",
        {},
    )
    assert "a worker of Spark" in found.what
    assert "/etc/tls/ca.pem" in (found.why or "")
    assert "--files" in (found.next or "")


def test_a_failure_is_told_by_what_was_raised_and_not_by_the_code_that_raised_it() -> None:
    """A traceback shows lines of code, with names of errors that did not happen."""
    found = failure(
        _of_a_task(
            '  File "metadata.py", line 7, in leader\n'
            "    if error in (UNKNOWN_TOPIC_OR_PARTITION, TOPIC_AUTHORIZATION_FAILED):\n"
            "penstock.errors.KafkaDenied: the user of this context may not do this; topic t is not there "
            "(TOPIC_AUTHORIZATION_FAILED); next: grant what is missing"
        ),
        "s",
        {},
    )
    assert found.what == "the user of this context may not do it"


def test_an_error_of_our_own_in_a_task_keeps_its_words() -> None:
    text = (
        "penstock.errors.JobFailed: nothing came for 120 s; at t, partition 3; it was late; next: look at it"
    )
    found = failure(_of_a_task(text), "s", {})
    assert (found.what, found.next) == ("nothing came for 120 s", "look at it")
    found = failure(_of_a_task("penstock.errors.ConfigError: no such thing"), "s", {})
    assert (found.what, found.next) == ("no such thing", "run again: the checkpoint knows where to go on")


def test_a_failure_does_not_show_the_plan_of_the_query() -> None:
    text = """[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: it broke
=== Streaming Query ===
Identifier: s [id = 1, runId = 2]
Current Committed Offsets: {s, route r: {"in": {"0": 4}}}
Current Available Offsets: {s, route r: {"in": {"0": 8}}}

Current State: ACTIVE
Thread State: RUNNABLE

Logical Plan:
WriteToMicroBatchDataSource noop-table
+- ~CollectMetrics s, [sum(n_in#0L) AS n_in#13L], 0
   +- StreamingDataSourceV2Relation

JVM stacktrace:
org.apache.spark.sql.streaming.StreamingQueryException: it broke
\tat org.apache.X(Y.scala:1)
Caused by: java.io.IOException: because"""
    assert failure(RuntimeError(text), "s", {}).why == (
        "[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: it broke\n"
        "org.apache.spark.sql.streaming.StreamingQueryException: it broke\n"
        "Caused by: java.io.IOException: because"
    )


def test_a_failure_is_short() -> None:
    found = failure(RuntimeError("\n".join(f"line {number}" for number in range(10_000))), "s", {})
    assert len(found.why or "") == 2000


@pytest.mark.parametrize(
    "text",
    [
        "org.apache.hadoop.hdfs.server.namenode.SafeModeException: Cannot create file /ck/offsets/7",
        "Call From host/127.0.0.1 to namenode:8020 failed on connection exception",
        "File /ck/offsets/.7 could only be written to 0 of the 1 minReplication nodes",
        'End of File Exception between local host is: "a/1.2.3.4"; destination host is: "b":8020; '
        ": java.io.EOFException",
        "DestHost:destPort b:8020 , LocalHost:localPort a/1.2.3.4:0. Failed on local exception: "
        "java.io.IOException: Connection reset by peer",
        "No Route to Host from a/1.2.3.4 to b:8020 failed on socket timeout exception",
        "org.apache.hadoop.ipc.StandbyException: Operation category WRITE is not supported in state standby",
        "All datanodes [DatanodeInfoWithStorage[1.2.3.4:9866,DS-1,DISK]] are bad. Aborting...",
        "org.apache.hadoop.hdfs.BlockMissingException: Could not obtain block: blk_1 file=/ck/s/metadata",
        "DestHost:destPort b:8020 , LocalHost:localPort a/1.2.3.4:0. Failed on local exception: "
        "java.io.IOException: javax.security.sasl.SaslException: GSS initiate failed [Caused by GSSException:"
        " No valid credentials provided (Mechanism level: Connection refused)]",
        "org.apache.hadoop.security.KerberosAuthException: failure to login: for principal: p@R from keytab "
        "/k javax.security.auth.login.LoginException: Receive timed out",
        "org.apache.kafka.common.errors.TimeoutException: Expiring 3 record(s)",
    ],
)
def test_a_store_or_a_cluster_that_is_away_is_waited_for(text: str) -> None:
    assert is_away(failure(RuntimeError(text), "s", {}), {})
    assert not is_away(failure(RuntimeError("something else"), "s", {}), {})


def test_a_login_that_has_run_out_is_no_store_that_is_away() -> None:
    text = (
        "DestHost:destPort b:8020 , LocalHost:localPort a/1.2.3.4:0. Failed on local exception: "
        "java.io.IOException: org.apache.hadoop.security.AccessControlException: "
        "Client cannot authenticate via:[TOKEN, KERBEROS]"
    )
    failed = failure(RuntimeError(text), "s", {})
    assert "log in" in (failed.next or "")
    assert not is_away(failed, {})


def batch(**counts: int) -> Progress:
    return Progress(source="s", batch=1, counts=counts, seconds=0.3, lag=7)


def test_metrics_have_every_series_from_the_start_and_count_batches() -> None:
    now = 100.0
    metrics = Metrics(clock=lambda: now)
    metrics.begin("s")
    assert b'penstock_pipeline_events_total{outcome="dead",source="s"} 0.0' in metrics.text()
    now = 150.0  # the age is counted from the last batch, not from the start
    metrics.batch(batch(n_in=5, n_dead=2))
    metrics.batch(batch(n_in=1))
    metrics.lost("s", 4)
    now = 153.0
    text = metrics.text().decode()
    for line in (
        'penstock_pipeline_events_total{outcome="in",source="s"} 6.0',
        'penstock_pipeline_events_total{outcome="dead",source="s"} 2.0',
        'penstock_pipeline_lost_total{source="s"} 4.0',
        'penstock_pipeline_batches_total{source="s"} 2.0',
        'penstock_pipeline_lag{source="s"} 7.0',
        'penstock_pipeline_last_batch_age_seconds{source="s"} 3.0',
        'penstock_pipeline_batch_seconds_bucket{le="0.5",source="s"} 2.0',
    ):
        assert line in text


def test_pages_are_served_by_their_path() -> None:
    with serve("127.0.0.1", 0, {"/a": lambda: Answer(b"one")}) as (host, port):
        with urllib.request.urlopen(f"http://{host}:{port}/a?x", timeout=5) as answer:
            assert answer.read() == b"one"
        with pytest.raises(urllib.error.HTTPError, match="404") as caught:
            urllib.request.urlopen(f"http://{host}:{port}/b", timeout=5)
        caught.value.close()
        with pytest.raises(PortTaken), serve(host, port, {}):
            pass


def told_by_spark(latest: dict[str, Any] | None) -> Any:
    source = {
        "startOffset": "None",
        "endOffset": {"t": {"0": 10}},
        "latestOffset": latest,
        "numInputRows": 10,
    }
    progress = {
        "name": "s",
        "batchId": 7,
        "observedMetrics": {"s": dict.fromkeys(COUNTERS, 3)},
        "sources": [source],
        "durationMs": {"triggerExecution": 1500},
    }
    return SimpleNamespace(json=lambda: json.dumps({"progress": progress}))


@pytest.mark.parametrize(("latest", "lag"), [({"t": {"0": 14}}, 4), (None, 5)])
def test_what_spark_tells_of_a_batch(latest: dict[str, Any] | None, lag: int) -> None:
    heard: list[Progress] = []
    listener({"s": ("t", {0: 15})}, heard.append, lambda run: None).onQueryProgress(told_by_spark(latest))
    (progress,) = heard
    assert (progress.batch, progress.lag, progress.seconds, progress.end) == (7, lag, 1.5, {0: 10})
    assert (progress.start, progress.records, progress.counts["n_in"]) == ({}, 10, 3)


def test_a_batch_without_rows_has_counted_nothing() -> None:
    """A sum over no rows is null."""
    event = json.loads(told_by_spark(None).json())
    heard: list[Progress] = []
    made = listener({"s": ("t", {})}, heard.append, lambda run: None)
    event["progress"]["observedMetrics"]["s"] = {**dict.fromkeys(COUNTERS), "n_lost": None, "n_own": None}
    made.onQueryProgress(SimpleNamespace(json=lambda: json.dumps(event)))
    (progress,) = heard
    assert progress.counts == dict.fromkeys(COUNTERS, 0)
    # Spark reports a batch without metrics where there was nothing to do.
    event["progress"]["observedMetrics"] = {}
    made.onQueryProgress(SimpleNamespace(json=lambda: json.dumps(event)))
    event["progress"]["name"] = "of somebody else"
    made.onQueryProgress(SimpleNamespace(json=lambda: json.dumps(event)))
    assert len(heard) == 1


@pytest.mark.parametrize(("metrics", "lost"), [({}, None), ({"n_lost": 4}, 4), ({"n_lost": None}, 0)])
def test_whether_an_engine_counts_what_is_lost_is_known(metrics: dict[str, Any], lost: int | None) -> None:
    event = json.loads(told_by_spark(None).json())
    event["progress"]["observedMetrics"]["s"] |= metrics
    heard: list[Progress] = []
    made = listener({"s": ("t", {})}, heard.append, lambda run: None)
    made.onQueryProgress(SimpleNamespace(json=lambda: json.dumps(event)))
    assert [each.lost for each in heard] == [lost]
    assert "n_lost" not in heard[0].counts


def query_that_says(message: str, data: bool = False) -> Any:
    return RunningQuery(SimpleNamespace(status={"message": message, "isDataAvailable": data}), "1")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("message", "data", "idle"),
    [
        ("Waiting for data to arrive", False, True),
        ("Waiting for next trigger", True, False),
        ("Getting offsets from KafkaV2", False, False),
        ("Initializing sources", False, False),
    ],
)
def test_a_job_is_idle_when_its_sources_answer_that_there_is_nothing(
    message: str, data: bool, idle: bool, pipeline: Pipeline
) -> None:
    job = Job(pipeline, JobOptions(until_idle=0.0))
    assert job._idle({"s": query_that_says(message, data)}) is idle
    assert Job(pipeline, JobOptions())._idle({"s": query_that_says(message, data)}) is False


class Told:
    """A query, its planner and its Java, which note what they are told."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.idle_at = monotonic()
        self.status = {"message": "Waiting for data to arrive"}

    def release(self) -> None:
        self.calls.append("release")

    def stop(self) -> None:
        self.calls.append("stop")

    @property
    def _jsq(self) -> Any:
        self.calls.append("java")
        raise AttributeError("no Java here")


def test_a_query_whose_planner_has_just_found_nothing_is_waiting() -> None:
    told: Any = Told()
    query = RunningQuery(told, "1", told)
    assert query.is_waiting
    told.idle_at -= 2.0
    assert not query.is_waiting
    told.idle_at = 0.0
    assert not query.is_waiting


def test_a_planner_is_released_before_java_waits_for_it() -> None:
    told: Any = Told()
    RunningQuery(told, "1", told).stop()
    assert told.calls == ["release", "stop"]


def test_a_planner_is_released_when_a_query_is_asked_to_end() -> None:
    told: Any = Told()
    assert finish(RunningQuery(told, "1", told))
    assert told.calls == ["release", "java", "release", "stop"]


@pytest.mark.parametrize(
    ("settings", "counts"),
    [
        ({}, [2, 4]),
        ({"spark.dynamicAllocation.enabled": "true"}, [100, 100]),
        (
            {
                "spark.dynamicAllocation.enabled": "true",
                "spark.dynamicAllocation.maxExecutors": "3",
                "spark.executor.cores": "1",
            },
            [3, 4],
        ),
        ({"spark.dynamicAllocation.enabled": "true", "spark.executor.cores": "2"}, [200, 200]),
        (
            {
                "spark.dynamicAllocation.enabled": "true",
                "spark.dynamicAllocation.maxExecutors": str(2**31 - 1),
            },
            [100, 100],
        ),
    ],
)
def test_slots_are_asked_for_anew_and_settings_once(settings: dict[str, str], counts: list[int]) -> None:
    """With dynamic allocation it is how many executors may come."""
    asked, now = [], SimpleNamespace(defaultParallelism=2)

    def get_conf() -> dict[str, str]:
        asked.append(1)
        return settings

    now.getConf = get_conf
    slots = _slots(SimpleNamespace(sparkContext=now))  # type: ignore[arg-type]
    found = [slots()]
    now.defaultParallelism = 4
    found.append(slots())
    assert found == counts
    assert len(asked) == 1
