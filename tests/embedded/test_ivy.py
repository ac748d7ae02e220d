"""What Ivy is told: proxies from the environment, exact artifacts, no host of ours."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from penstock.embedded import ivy
from penstock.embedded.artifact import Artifact
from penstock.errors import ConfigError


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("https_proxy", "HTTPS_PROXY", "PENSTOCK_MAVEN_MIRROR"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("proxy", "host", "port"),
    [
        ("http://proxy.example:3128", "proxy.example", 3128),
        ("http://user:word@proxy.example:3128/", "proxy.example", 3128),
        ("proxy.example:3128", "proxy.example", 3128),
        ("http://proxy.example", "proxy.example", 80),
        ("https://proxy.example", "proxy.example", 443),
        ("http://[::1]:3128", "::1", 3128),
    ],
)
def test_a_proxy_is_passed_on(monkeypatch: pytest.MonkeyPatch, proxy: str, host: str, port: int) -> None:
    monkeypatch.setenv("https_proxy", proxy)
    assert ivy._proxy() == [f"-Dhttps.proxyHost={host}", f"-Dhttps.proxyPort={port}"]


@pytest.mark.parametrize("proxy", ["http://proxy.example:many", "http://proxy.example:99999", "http://[x"])
def test_a_proxy_that_is_none(monkeypatch: pytest.MonkeyPatch, proxy: str) -> None:
    monkeypatch.setenv("HTTPS_PROXY", proxy)
    with pytest.raises(ConfigError, match="proxy"):
        ivy._proxy()


def test_no_proxy_is_no_option() -> None:
    assert ivy._proxy() == []


def test_each_file_is_asked_for_by_name() -> None:
    def artifact(version: str, classifier: str = "", type: str = "jar") -> Artifact:
        return Artifact(
            group="org.test",
            name="a",
            version=version,
            classifier=classifier,
            type=type,
            size=1,
            sha256="0" * 64,
        )

    text = ivy._module([artifact("1"), artifact("1", "linux"), artifact("2", "all", "tar.gz")])
    dependencies = ElementTree.fromstring(text).findall("dependencies/dependency")
    classifier = "{http://ant.apache.org/ivy/maven}classifier"
    found = [
        (d.get("rev"), d.get("transitive"), [(a.get("ext"), a.get(classifier)) for a in d])
        for d in dependencies
    ]
    assert found == [
        ("1", "false", [("jar", None), ("jar", "linux")]),
        ("2", "false", [("tar.gz", "all")]),
    ]


def test_only_a_mirror_names_a_host(monkeypatch: pytest.MonkeyPatch) -> None:
    assert ivy._root() == ""
    assert not re.search(r"https?://", ivy._SETTINGS)
    monkeypatch.setenv("PENSTOCK_MAVEN_MIRROR", 'http://m/"><x')
    settings = ivy._SETTINGS.format(cache='"/tmp"', root=ivy._root())
    (resolver,) = ElementTree.fromstring(settings).findall("resolvers/ibiblio")
    assert resolver.get("root") == 'http://m/"><x'
    assert (resolver.get("m2compatible"), resolver.get("usepoms")) == ("true", "false")


def test_the_ivy_of_pyspark_is_there() -> None:
    assert re.fullmatch(r"ivy-2\..*\.jar", Path(ivy._ivy_jar()).name)
