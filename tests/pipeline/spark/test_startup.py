"""How Java is started and from where, and what becomes of it if that is interrupted."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
from pathlib import Path
from threading import Event
from types import SimpleNamespace

import pytest
from pyspark import SparkContext, java_gateway

from penstock.errors import StartupError
from penstock.pipeline.spark import startup
from penstock.pipeline.spark.session import ADDED_PATTERNS
from penstock.pipeline.spark.startup import lean_home, lean_spark


@pytest.fixture
def without_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("SPARK_HOME", raising=False)
    monkeypatch.setenv("PENSTOCK_HOME", str(tmp_path))


@pytest.mark.usefixtures("without_home")
def test_the_home_has_what_java_needs_and_no_python() -> None:
    home = lean_home()
    assert home is not None
    assert home == lean_home()
    assert list((home / "jars").glob("spark-core_*.jar"))
    assert os.access(home / "bin" / "spark-submit", os.X_OK)
    assert not (home / "python").exists()


@pytest.mark.usefixtures("without_home")
def test_the_environment_is_as_before() -> None:
    with lean_spark():
        assert os.environ["SPARK_HOME"] == str(lean_home())
    assert "SPARK_HOME" not in os.environ


def test_a_home_of_the_user_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_HOME", "/opt/spark")
    with lean_spark():
        assert os.environ["SPARK_HOME"] == "/opt/spark"
    assert os.environ["SPARK_HOME"] == "/opt/spark"


@pytest.mark.usefixtures("without_home")
def test_where_no_links_can_be_made_the_package_is_the_home(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "spark").write_text("a file where a folder should be")
    with lean_spark():
        assert "SPARK_HOME" not in os.environ


def test_java_is_killed_if_its_start_is_interrupted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    noted = tmp_path / "pid"
    submit = tmp_path / "bin" / "spark-submit"
    submit.parent.mkdir()
    submit.write_text(f"#!/bin/sh\necho $$ > {noted}.new && mv {noted}.new {noted}\nexec sleep 600\n")
    submit.chmod(0o755)

    def sleep(seconds: float) -> None:
        """Take the place of PySpark's wait for Java: Ctrl-C comes when Java has been started."""
        if noted.exists():
            raise KeyboardInterrupt

    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    monkeypatch.setattr(SparkContext, "_gateway", None)
    monkeypatch.setattr(java_gateway, "time", SimpleNamespace(sleep=sleep))
    popen = vars(java_gateway)["Popen"]
    with pytest.raises(KeyboardInterrupt):
        startup.start_java({}, default_master="local[1]", options=())
    with pytest.raises(ProcessLookupError):
        os.kill(int(noted.read_text()), 0)
    assert vars(java_gateway)["Popen"] is popen


def test_what_java_is_started_with(conf_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    noted = conf_dir / "environment"
    submit = conf_dir / "bin" / "spark-submit"
    submit.parent.mkdir()
    submit.write_text(f'#!/bin/sh\n{{ echo "WORDS=$*"; env; }} > {noted}\nexit 1\n')
    submit.chmod(0o755)
    monkeypatch.setenv("SPARK_HOME", str(conf_dir))
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "--conf spark.a=b pyspark-shell")
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", "-Dof.the.user=1")
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.2")
    monkeypatch.setattr(SparkContext, "_gateway", None)
    with pytest.raises(StartupError, match="ended before it was ready"):
        startup.start_java({"spark.c": "d"}, default_master="local[1]", options=("-Dours=1",))
    found = dict(line.split("=", 1) for line in noted.read_text().splitlines() if "=" in line)
    assert found["WORDS"].endswith("--conf spark.a=b --conf spark.c=d pyspark-shell")
    # Of two options of Java for one thing the last holds.
    assert found["SPARK_SUBMIT_OPTS"].endswith("-Dours=1 -Dof.the.user=1")
    assert (found["MASTER"], found["SPARK_LOCAL_IP"]) == ("local[1]", "127.0.0.2")
    # Python workers inherit the environment of Java.
    assert "PYSPARK_SUBMIT_ARGS" not in found
    assert os.environ["PYSPARK_SUBMIT_ARGS"] == "--conf spark.a=b pyspark-shell"
    assert os.environ["SPARK_SUBMIT_OPTS"] == "-Dof.the.user=1"
    assert "MASTER" not in os.environ


_LOGIN = (
    "org.apache.hadoop.security.KerberosAuthException: failure to login: for principal: p@R from keytab "
    "/k javax.security.auth.login.LoginException: "
)


@pytest.mark.parametrize(
    ("said", "what", "advice"),
    [
        (f"{_LOGIN}Unable to obtain password from user", "could not log in", "klist -kt"),
        (f"{_LOGIN}Client not found in Kerberos database (6)", "could not log in", "klist -kt"),
        (
            "java.lang.IllegalArgumentException: requirement failed: Keytab file: /k does not exist",
            "could not log in",
            "spark.kerberos.keytab",
        ),
        (f"{_LOGIN}Connection refused", "key distribution center", "krb5.conf"),
        (f"{_LOGIN}Receive timed out", "key distribution center", "krb5.conf"),
        (f"{_LOGIN}Clock skew too great (37)", "clock", "NTP"),
        ("java.lang.IllegalStateException: something else", "ended before it was ready", "--conf"),
    ],
)
def test_what_java_died_of_at_its_start_is_told(
    conf_dir: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    said: str,
    what: str,
    advice: str,
) -> None:
    submit = conf_dir / "bin" / "spark-submit"
    submit.parent.mkdir()
    trace = f'Exception in thread "main" {said}\n\n\tat org.X(Y.java:1)\nCaused by: it\n\t... 10 more\n'
    (conf_dir / "trace").write_text(trace)
    submit.write_text(f"#!/bin/sh\ncat {conf_dir}/trace >&2\nexit 1\n")
    submit.chmod(0o755)
    monkeypatch.setenv("SPARK_HOME", str(conf_dir))
    monkeypatch.setattr(SparkContext, "_gateway", None)
    with pytest.raises(StartupError, match=what) as caught:
        startup.start_java({}, default_master="local[1]", options=())
    assert caught.value.why == said
    assert advice in (caught.value.next or "")
    assert capfd.readouterr().err == f'Exception in thread "main" {said}\nCaused by: it\n'


@pytest.mark.slow
def test_an_option_that_spark_submit_refuses_is_told_without_a_list_of_all(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "--foo bar pyspark-shell")
    monkeypatch.setattr(SparkContext, "_gateway", None)
    with pytest.raises(StartupError, match="ended before it was ready") as caught:
        startup.start_java({}, default_master="local[1]", options=())
    assert caught.value.why == "Unrecognized option: --foo"
    assert "PYSPARK_SUBMIT_ARGS" in (caught.value.next or "")
    assert capfd.readouterr().err.split() == ["Error:", *caught.value.why.split()]


@pytest.mark.parametrize("when", ["before", "meanwhile"])
def test_a_start_can_be_abandoned(when: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    noted = tmp_path / "pid"
    submit = tmp_path / "bin" / "spark-submit"
    submit.parent.mkdir()
    submit.write_text(f"#!/bin/sh\necho $$ > {noted}.new && mv {noted}.new {noted}\nexec sleep 600\n")
    submit.chmod(0o755)

    def sleep(seconds: float) -> None:
        if noted.exists():
            startup.abandon_start()

    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    monkeypatch.setattr(SparkContext, "_gateway", None)
    monkeypatch.setattr(java_gateway, "time", SimpleNamespace(sleep=sleep))
    monkeypatch.setattr(startup, "_abandoned", Event())
    monkeypatch.setattr(startup, "_java", [])
    if when == "before":
        startup.abandon_start()
    with pytest.raises(StartupError):
        startup.start_java({}, default_master="local[1]", options=())
    assert noted.exists() == (when == "meanwhile")
    for process in startup._java:
        assert process.poll() is not None


_TELLS = """
import json, os, psutil
from pyspark import SparkContext
from penstock.pipeline.spark.session import spark_session

spark = spark_session(master="local[1]")
java = psutil.Process(SparkContext._gateway.proc.pid)
(worker,) = spark.sparkContext.parallelize([0], 1).map(lambda _: dict(os.environ)).collect()
print(json.dumps({"java": java.environ(), "worker": worker}))
spark.stop()
"""


@pytest.mark.server
def test_java_and_its_workers_get_no_variables_that_they_do_not_need() -> None:
    environment = {
        **os.environ,
        "KAFKA_PASSWORD": "hunter2",
        "PENSTOCK_PULSAR_TOKEN": "hunter2",
        "SPARK_LOCAL_HOSTNAME": "localhost",
        "LC_ALL": "C.UTF-8",
    }
    command = [sys.executable, "-c", _TELLS]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    for found in json.loads(done.stdout).values():
        assert "hunter2" not in found.values()
        assert (found["LC_ALL"], found["SPARK_LOCAL_HOSTNAME"]) == ("C.UTF-8", "localhost")


@pytest.fixture
def conf_dir(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    for name in ("PYSPARK_SUBMIT_ARGS", "MASTER", "SPARK_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize(
    ("settings", "arguments", "defaults", "variable", "master"),
    [
        ({}, "", "", None, "ours"),
        ({}, "", "", "variable", "variable"),
        ({}, "", "spark.master   file # no comment", "variable", "file # no comment"),
        ({}, "", "spark.master=file", "variable", "file"),
        ({}, "", "#spark.master file\nspark.masters other", None, "ours"),
        ({}, "--conf spark.master=conf pyspark-shell", "spark.master file", "variable", "conf"),
        ({}, "--master flag --conf spark.master=conf pyspark-shell", "spark.master file", None, "flag"),
        ({}, "--master=flag pyspark-shell", "", None, "flag"),
        ({}, "--conf spark.master=first --conf spark.master=last pyspark-shell", "", None, "last"),
        ({}, "--master first --master last pyspark-shell", "", None, "last"),
        ({"spark.master": "explicit"}, "--master flag pyspark-shell", "spark.master file", None, "explicit"),
    ],
)
def test_the_master_is_looked_up_in_sparks_order(
    settings: dict[str, str],
    arguments: str,
    defaults: str,
    variable: str | None,
    master: str,
    conf_dir: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if arguments:
        monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", arguments)
    if variable:
        monkeypatch.setenv("MASTER", variable)
    (conf_dir / "spark-defaults.conf").write_text(defaults)
    assert startup.expected_master(settings, "ours") == master


def test_explicit_settings_come_after_those_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "--driver-memory 1g --conf 'spark.a=b c' pyspark-shell")
    words = startup._submit_arguments({"spark.driver.memory": "2g", "spark.a": "d e"})
    assert words == (
        "--driver-memory 1g --conf 'spark.a=b c' --driver-memory 2g --conf 'spark.a=d e' pyspark-shell"
    )


@pytest.mark.parametrize(
    ("words", "master"),
    [
        ("--properties-file {file}", "cluster"),
        ("--properties-file={file}", "cluster"),
        ("--properties-file {other}", "ours"),
        ("--properties-file {other} --load-spark-defaults", "defaults"),
        ("--properties-file {file} --load-spark-defaults", "cluster"),
        ("--properties-file {file} --conf=spark.master=conf", "conf"),
        ("--properties-file missing", "ours"),
    ],
)
def test_the_master_of_a_file_of_properties_is_known(
    words: str, master: str, conf_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (conf_dir / "spark-defaults.conf").write_text("spark.master defaults")
    (conf_dir / "file").write_text("spark.master = first\nspark.master = cluster\n")
    (conf_dir / "other").write_text("spark.a b\n")
    given = words.format(file=conf_dir / "file", other=conf_dir / "other")
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", f"{given} pyspark-shell")
    assert startup.expected_master({}, "ours") == master


def test_secrets_are_not_on_the_command_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYSPARK_SUBMIT_ARGS", raising=False)
    words = startup._submit_arguments(
        {
            "spark.hadoop.fs.s3a.secret.key": "hunter2",
            "spark.hadoop.fs.azure.account.key.store": "hunter2",
            "spark.authenticate.secret": "hunter2",
            "spark.hadoop.x.url": "jdbc:h2:password=hunter2",
            "spark.executorEnv.URL": "jdbc:h2:password=hunter2",
            "spark.hadoop.fs.s3a.endpoint": "http://s3",
            "spark.driver.extraJavaOptions": "-Dkey=/etc/token",
        }
    )
    assert words == (
        "--conf spark.hadoop.fs.s3a.endpoint=http://s3 "
        "--conf spark.driver.extraJavaOptions=-Dkey=/etc/token pyspark-shell"
    )


def test_secrets_are_those_that_spark_does_not_show() -> None:
    for pattern in ADDED_PATTERNS["spark.redaction.regex"]:
        for word in re.sub(r"[(]\?i:?[)]?|[)]|\[[.]\]\?", "", pattern).split("|"):
            assert startup._is_secret(f"spark.{word.upper()}", "")


@pytest.mark.parametrize("ending", ["properties", "xml", "yaml", "json"])
def test_log_settings_of_the_user_are_left_alone(ending: str, conf_dir: Path) -> None:
    assert startup._log_options()
    (conf_dir / f"log4j2.{ending}").touch()
    assert startup._log_options() == ()


def test_a_java_of_spark_submit_has_ended_when_its_port_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address, port = server.getsockname()
        gateway = SimpleNamespace(gateway_parameters=SimpleNamespace(address=address, port=port))
        monkeypatch.setattr(SparkContext, "_gateway", gateway)
        assert not startup.java_has_ended(0.0)
    assert startup.java_has_ended(5.0)


def test_only_what_fails_because_java_is_gone_is_let_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(startup, "java_has_ended", lambda seconds: False)
    with pytest.raises(KeyError), startup.unless_java_ended():
        raise KeyError("x")
    monkeypatch.setattr(startup, "java_has_ended", lambda seconds: True)
    with startup.unless_java_ended():
        raise ConnectionRefusedError(111, "Connection refused")
