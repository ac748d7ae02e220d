"""penstock.config.child_environment: children get by name what they need, and no passwords."""

from __future__ import annotations

import pytest

from penstock.config import Child, child_environment

SECRETS = {
    "KAFKA_PASSWORD": "pw",
    "PULSAR_TOKEN": "pw",
    "PENSTOCK_KAFKA_PASSWORD": "pw",
    "PYTHON_WORKER_FACTORY_SECRET": "pw",
    "DATABASE_URL": "pw",
}


@pytest.mark.parametrize("kind", Child)
def test_no_child_gets_what_is_not_in_its_row(kind: Child) -> None:
    assert child_environment(kind, environ={**SECRETS, "PATH": "/bin"}) == {"PATH": "/bin"}


@pytest.mark.parametrize(
    ("name", "kinds"),
    [
        ("LC_TIME", set(Child)),
        ("PYTHONPATH", {Child.PENSTOCK, Child.SPARK, Child.FUNCTION}),
        ("JAVA_HOME", {Child.SERVER, Child.PENSTOCK, Child.SPARK}),
        ("PENSTOCK_HOME", {Child.PENSTOCK, Child.SPARK}),
        ("PENSTOCK_MAVEN_MIRROR", {Child.PENSTOCK, Child.SPARK}),
        ("https_proxy", {Child.PENSTOCK, Child.SPARK}),
        ("SPARK_CONF_DIR", {Child.SPARK}),
        ("PYSPARK_PYTHON", {Child.SPARK}),
        ("HADOOP_CONF_DIR", {Child.SPARK}),
        ("_PYSPARK_DRIVER_CONN_INFO_PATH", {Child.SPARK}),
        ("AWS_SECRET_ACCESS_KEY", {Child.SPARK}),
    ],
)
def test_each_kind_has_its_row(name: str, kinds: set[Child]) -> None:
    assert {kind for kind in Child if child_environment(kind, environ={name: "x"})} == kinds


def test_what_is_granted_goes_before_what_is_found() -> None:
    found = child_environment(Child.FUNCTION, {"LANG": "de", "A": "b"}, environ={"LANG": "C"})
    assert found == {"LANG": "de", "A": "b"}
