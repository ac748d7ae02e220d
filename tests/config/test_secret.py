"""penstock.config.secret: masked everywhere, looked up on demand."""

from __future__ import annotations

import copy
import json
import logging
import pickle
import traceback
from dataclasses import asdict
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.config import Secret, Security
from penstock.config.secret import (
    MAX_SECRET_BYTES,
    Reference,
    check_references,
    current,
    mask_address,
    resolve,
)
from penstock.errors import ConfigError

CLEAR = "correct-horse"


def shown_forms(secret: Secret) -> list[str]:
    record = logging.LogRecord("x", logging.INFO, "f", 1, "%s %r", (secret, secret), None)
    return [
        str(secret),
        repr(secret),
        f"{secret} {secret!r} {secret:>20}",
        "%s" % secret,  # noqa: UP031
        json.dumps({"p": secret}, default=str),
        repr(Security(password=secret)),
        str(asdict(Security(password=secret))),
        record.getMessage(),
        repr([secret]),
    ]


def test_no_usual_way_of_printing_shows_it() -> None:
    for form in shown_forms(Secret(CLEAR)):
        assert CLEAR not in form
        assert "******" in form


def test_reveal_gives_it() -> None:
    assert Secret(CLEAR).reveal() == CLEAR
    assert Secret(lambda: CLEAR).reveal() == CLEAR


def test_it_does_not_travel_by_accident() -> None:
    with pytest.raises(TypeError, match="reveal"):
        pickle.dumps(Secret(CLEAR))
    with pytest.raises(TypeError):
        hash(Secret(CLEAR))


def test_a_copy_is_the_same_secret() -> None:
    secret = Secret(CLEAR)
    assert copy.copy(secret) is secret
    assert copy.deepcopy(secret) is secret


def test_equality_looks_at_the_text() -> None:
    assert Secret("é") == Secret("é")
    assert Secret("a") != Secret("b")
    assert Secret("a") != "a"


def test_an_error_about_it_does_not_quote_it(tmp_path: Path) -> None:
    (tmp_path / "pw").write_bytes(CLEAR.encode() + b"\xff")
    with pytest.raises(ConfigError) as caught:
        resolve("${file:pw}", where="here", folder=tmp_path)
    assert CLEAR not in "".join(traceback.format_exception(caught.value))


def test_references_are_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOST", "h")
    (tmp_path / "port").write_text("9092\n")
    assert resolve("${env:HOST}:${file:port}", where="", folder=tmp_path) == "h:9092"
    assert resolve(f"${{file:{tmp_path}/port}}", where="", folder=Path("elsewhere")) == "9092"


def test_only_the_last_line_end_goes(tmp_path: Path) -> None:
    (tmp_path / "pw").write_bytes(b" a b \r\n")
    assert resolve("${file:pw}", where="", folder=tmp_path) == " a b "


@pytest.mark.parametrize("text", ["${vault:x}", "${env:}", "${x}", "${}", "a${file:}b"])
def test_an_unknown_reference_is_refused_before_it_is_needed(text: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="not a reference"):
        check_references(text, where="f:1")
    with pytest.raises(ConfigError, match="not a reference"):
        resolve(text, where="f:1", folder=tmp_path)


def test_what_is_missing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOT_SET", raising=False)
    with pytest.raises(ConfigError, match="NOT_SET") as caught:
        resolve("${env:NOT_SET}", where="penstock.yaml:7", folder=tmp_path)
    assert caught.value.where == "penstock.yaml:7"
    assert caught.value.next == "export NOT_SET=..."
    with pytest.raises(ConfigError, match="no-such-user"):
        resolve("${file:~no-such-user/x}", where="", folder=tmp_path)
    with pytest.raises(ConfigError, match=r"none\.txt"):
        resolve("${file:none.txt}", where="", folder=tmp_path)


def test_a_huge_file_is_no_secret(tmp_path: Path) -> None:
    (tmp_path / "big").write_bytes(b"x" * (MAX_SECRET_BYTES + 1))
    with pytest.raises(ConfigError, match="larger"):
        resolve("${file:big}", where="", folder=tmp_path)


@given(st.text(alphabet="${}:envfile\0 /.abc", max_size=40))
def test_any_text_resolves_or_is_a_config_error(text: str) -> None:
    try:
        assert isinstance(resolve(text, where="here", folder=Path("/nonexistent")), str)
    except ConfigError as exc:
        assert exc.what


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("http://u:p@h:1/x", "http://******@h:1/x"),
        ("http://u:p@p@h", "http://******@h"),
        ("pulsar://h:6650", "pulsar://h:6650"),
        ("h:9092", "h:9092"),
        ("http://h/a@b", "http://h/a@b"),
    ],
)
def test_credentials_in_an_address_are_hidden(address: str, shown: str) -> None:
    assert mask_address(address) == shown


def test_a_secret_from_a_file_is_read_again_also_after_it_travelled(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("old\n")
    secret = Secret(Reference("token:${file:password}", "here", tmp_path))
    assert secret.changes
    revealed = secret.reveal()
    travelled = pickle.loads(pickle.dumps(revealed))
    assert (revealed, travelled) == ("token:old", "token:old")
    file.write_text("new\n")
    assert current(travelled) == current(current(travelled)) == "token:new"
    assert secret.prefixed("pre").reveal() == "pretoken:new"
    file.unlink()
    assert current(travelled) == "token:old"


def test_other_secrets_stay_as_they_were_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_PASSWORD", "old")
    assert Reference("${env:TEST_PASSWORD}${file:password}", "here", tmp_path).names_file
    for secret in (Secret("old"), Secret(Reference("${env:TEST_PASSWORD}", "here", tmp_path))):
        assert not secret.changes
        revealed = secret.reveal()
        assert type(revealed) is str
        assert current(revealed) is revealed
        assert secret.prefixed("token:").reveal() == "token:old"


def test_a_reference_shows_nothing_of_what_was_written(tmp_path: Path) -> None:
    assert CLEAR not in repr(Reference(CLEAR, "here", tmp_path))
