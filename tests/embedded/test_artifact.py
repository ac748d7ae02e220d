"""The lines of a jar lock: read, written, refused; and what the shipped locks promise."""

from __future__ import annotations

import re
from importlib import resources

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.embedded.artifact import LOCKS, Artifact, parse_lock, read_lock
from penstock.errors import ArtifactError

SHA = "0123456789abcdef" * 4

words = st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,20}", fullmatch=True).filter(lambda w: ".." not in w)
artifacts = st.builds(
    Artifact,
    group=words,
    name=words,
    version=words,
    classifier=st.just("") | words,
    type=st.sampled_from(["jar", "tar.gz", "zip"]),
    size=st.integers(min_value=0, max_value=2**40),
    sha256=st.from_regex(r"[0-9a-f]{64}", fullmatch=True),
)


@given(artifacts)
def test_a_line_reads_back_as_what_it_was(artifact: Artifact) -> None:
    assert parse_lock(f"# about\n\n{artifact.line}\n", origin="test.lock") == (artifact,)


@pytest.mark.parametrize(
    ("coordinate", "file"),
    [
        ("g.h:a:1", "g.h/a-1.jar"),
        ("g.h:a:1:linux-x86_64:jar", "g.h/a-1-linux-x86_64.jar"),
        ("g.h:a:1:all:tar.gz", "g.h/a-1-all.tar.gz"),
        ("g.h:a:1::tar.gz", "g.h/a-1.tar.gz"),
    ],
)
def test_where_a_file_lies(coordinate: str, file: str) -> None:
    (artifact,) = parse_lock(f"{coordinate} 5 sha256:{SHA}", origin="test.lock")
    assert (artifact.path, artifact.coordinate) == (file, coordinate)


@pytest.mark.parametrize(
    "line",
    [
        "just words",
        f"g:a 5 sha256:{SHA}",
        f"g:a:1:classifier 5 sha256:{SHA}",
        f"g:a:1:c:jar:more 5 sha256:{SHA}",
        f"g:a:1 5 sha256:{SHA} more",
        f"g:a:1 sha256:{SHA}",
        f"g:a:1 five sha256:{SHA}",
        f"g:a:1 -5 sha256:{SHA}",
        f"g:a:1 1_000 sha256:{SHA}",
        f"g:a:1 5 md5:{SHA}",
        f"g:a:1 5 {SHA}",
        f"g:a:1 5 sha256:{SHA[:-1]}",
        f"g:a:1 5 sha256:{SHA[:-1]}x",
        f"g:a:1 5 sha256:{SHA.upper()}",
        f":a:1 5 sha256:{SHA}",
        f"g::1 5 sha256:{SHA}",
        f"g:a: 5 sha256:{SHA}",
        f"g:a:1:c: 5 sha256:{SHA}",
        f"../g:a:1 5 sha256:{SHA}",
        f"..:a:1 5 sha256:{SHA}",
        f".:a:1 5 sha256:{SHA}",
        f"g:/etc/passwd:1 5 sha256:{SHA}",
        f"g:a\\b:1 5 sha256:{SHA}",
        f'g:a"<x/>:1 5 sha256:{SHA}',
        f"g:a\0:1 5 sha256:{SHA}",
        f"g:*:1 5 sha256:{SHA}",
        f"g:ä:1 5 sha256:{SHA}",
    ],
)
def test_a_line_that_is_no_line_is_named(line: str) -> None:
    with pytest.raises(ArtifactError) as caught:
        parse_lock(f"# about\n{line}", origin="test.lock")
    assert caught.value.where == "test.lock:2"


@given(st.text(max_size=200))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        found = parse_lock(text, origin="test.lock")
    except ArtifactError:
        return
    assert all(len(artifact.sha256) == 64 for artifact in found)


@pytest.mark.parametrize("lock", LOCKS)
def test_a_shipped_lock_is_in_order(lock: str) -> None:
    lines = (resources.files("penstock.embedded") / "locks" / f"{lock}.lock").read_text().splitlines()
    entries = [line for line in lines if not line.startswith("#")]
    found = read_lock(lock)
    assert [artifact.line for artifact in found] == entries == sorted(set(entries))
    assert found
    assert len({artifact.path for artifact in found}) == len(found)
    assert all(artifact.size > 0 for artifact in found)


def test_no_host_is_named() -> None:
    folder = resources.files("penstock.embedded") / "locks"
    for file in folder.iterdir():
        assert not re.search(r"://|www\.|repo1|maven\.org", file.read_text()), file.name


def names(lock: str) -> set[str]:
    return {f"{a.name}:{a.classifier}".rstrip(":") for a in read_lock(lock)}


def test_pulsar_has_what_its_features_need() -> None:
    assert {
        # TLS and tokens
        *("netty-tcnative-boringssl-static:linux-x86_64", "netty-tcnative-boringssl-static:linux-aarch_64"),
        *("jjwt-api", "jjwt-impl", "jjwt-jackson"),
        # compressions: LZ4, ZSTD and SNAPPY (ZLIB is in the JDK)
        *("lz4-java", "aircompressor", "snappy-java"),
        # native epoll
        *("netty-transport-native-epoll:linux-x86_64", "netty-transport-native-epoll:linux-aarch_64"),
        # the bookie, its index, transactions
        *("bookkeeper-server", "rocksdbjni", "pulsar-transaction-coordinator"),
    } <= names("pulsar")


def test_kafka_has_its_compressions_and_a_log_binding() -> None:
    assert {"lz4-java", "zstd-jni", "snappy-java", "log4j-slf4j-impl", "log4j-core"} <= names("kafka")


def test_nothing_for_another_system_is_fetched() -> None:
    everything = {name for lock in LOCKS for name in names(lock)}
    assert not [name for name in everything if re.search(r":(osx|windows)", name)]
