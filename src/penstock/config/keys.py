"""The table of every key that may stand in penstock.yaml: its kind, its default and what it means.

`*` stands for a name that the user chooses. The same table checks the file, the environment and the
flags, names the environment variables, and prints the reference in the documentation.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Final

__all__ = ["KEYS", "Key", "Kind", "did_you_mean", "find_key", "is_name", "names_below"]

Parse = Callable[[str], object]


@dataclass(frozen=True, slots=True)
class Kind:
    """How a text becomes a value; `parse` raises ValueError with the reason."""

    name: str
    parse: Parse
    secret: bool = False


@dataclass(frozen=True, slots=True)
class Key:
    """One row: a dotted name, its kind, its default as text, and its meaning."""

    name: str
    kind: Kind
    default: str | None
    doc: str

    @property
    def variable(self) -> str | None:
        """The environment variable of this layer; None for keys below a name that the user chose."""
        return None if "*" in self.name else "PENSTOCK_" + self.name.upper().replace(".", "_")


_SECONDS: Final[Mapping[str, float]] = {"ms": 0.001, "s": 1, "m": 60, "h": 3600}
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_DURATION = re.compile(r"(\d{1,9}(?:\.\d{1,9})?) ?(ms|s|m|h)")


def _duration(text: str) -> float:
    """Give seconds.

    >>> _duration("500ms"), _duration("2m")
    (0.5, 120.0)
    """
    found = _DURATION.fullmatch(text)
    if found is None:
        raise ValueError(f"'{text}' is not a duration like 500ms, 5s, 2m or 1h")
    return float(found.group(1)) * _SECONDS[found.group(2)]


def _path(text: str) -> Path:
    if not text or "\0" in text:
        raise ValueError("it is not a path")
    return Path(os.path.expanduser(text))  # leaves `~nobody` as it is, where Path.expanduser raises


def _boolean(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError(f"'{text}' is neither true nor false")
    return text.lower() == "true"


def _choice(*words: str) -> Kind:
    def parse(text: str) -> str:
        if text.lower() not in words:
            raise ValueError(f"'{text}' is none of {', '.join(words)}")
        return text.lower()

    return Kind(" | ".join(words), parse)


TEXT: Final = Kind("text", str)
DURATION: Final = Kind("duration", _duration)
PATH: Final = Kind("path", _path)
SECRET: Final = Kind("secret", str, secret=True)
BOOLEAN: Final = Kind("true | false", _boolean)

_PROTOCOL = _choice("plaintext", "ssl", "sasl_plaintext", "sasl_ssl")
_MECHANISM = _choice("plain", "scram-sha-256", "scram-sha-512", "oauthbearer")


def _security(owner: str) -> Iterable[Key]:
    """Name the keys of a security block; the same for every kind of server."""
    rows = (
        (
            "protocol",
            _PROTOCOL,
            "How to connect; left out, with TLS if the contract or a certificate file says so.",
        ),
        ("mechanism", _MECHANISM, "SASL mechanism of a Kafka server."),
        ("username", TEXT, "User name for SASL or basic authentication."),
        ("password", SECRET, "Its password, best as `${env:NAME}` or `${file:PATH}`."),
        ("token", SECRET, "Bearer token: Pulsar's JWT, or the token of a registry."),
        (
            "token_url",
            TEXT,
            "Where oauthbearer gets its tokens, with user name and password as client id and secret.",
        ),
        ("ca_file", PATH, "Certificates that are trusted, in PEM form."),
        ("cert_file", PATH, "Our own certificate, for mutual TLS."),
        ("key_file", PATH, "The private key of that certificate."),
        ("key_password", SECRET, "The password of that key."),
    )
    return (Key(f"{owner}.security.{name}", kind, None, doc) for name, kind, doc in rows)


_SERVER, _REGISTRY, _GATEWAY = "contexts.*.servers.*", "contexts.*.registry", "contexts.*.gateway"

KEYS: Final[tuple[Key, ...]] = (
    Key("context", TEXT, None, "The context to use when `-C` is not given."),
    Key("contract", PATH, None, "The AsyncAPI document; left out, `asyncapi.yaml` is looked for upwards."),
    Key(
        "contract_root",
        PATH,
        None,
        "The folder below which a `$ref` of the document may lead; left out, that of `penstock.yaml` above "
        "the document, else that of its repository, else its own.",
    ),
    Key("contract_remote", BOOLEAN, "false", "Whether a `$ref` may lead to http and https addresses."),
    Key(
        "home", PATH, None, "Where jars and development servers are kept; left out, the user's cache folder."
    ),
    Key("java_home", PATH, None, "The Java to use, 17 to 21; left out, one is looked for."),
    Key("connect_timeout", DURATION, "5s", "How long to wait for a server to accept a connection."),
    Key(f"{_SERVER}.address", TEXT, None, "`host:port` (more with commas), or a `pulsar://` address."),
    Key(f"{_SERVER}.kind", _choice("kafka", "pulsar"), None, "Found from the address when it is left out."),
    Key(f"{_SERVER}.admin", TEXT, None, "Address of Pulsar's admin REST interface."),
    *_security(_SERVER),
    Key(f"{_REGISTRY}.address", TEXT, None, "Address of the schema registry."),
    *_security(_REGISTRY),
    Key(f"{_GATEWAY}.address", TEXT, None, "`host:port` at which the gateway serves the Kafka protocol."),
    *_security(_GATEWAY),
    Key(
        "contexts.*.functions.environment.*",
        TEXT,
        None,
        "An environment variable for functions of pipelines; they get no others of the user's.",
    ),
)
_BY_STEPS: Final[Mapping[tuple[str, ...], Key]] = {tuple(key.name.split(".")): key for key in KEYS}


def find_key(path: tuple[str, ...]) -> Key | None:
    """Find the row for a path like ("contexts", "dev", "servers", "kafka", "address")."""
    return next(
        (key for steps, key in _BY_STEPS.items() if _fits(path, steps) and len(steps) == len(path)), None
    )


def names_below(path: tuple[str, ...]) -> tuple[str, ...]:
    """Give the names that may follow a path; ("*",) when the user chooses, () when none may.

    >>> names_below(("contexts", "dev"))
    ('servers', 'registry', 'gateway', 'functions')
    """
    depth = len(path)
    return tuple(dict.fromkeys(s[depth] for s in _BY_STEPS if len(s) > depth and _fits(path, s)))


def is_name(word: str) -> bool:
    """Say whether a word may stand for `*`; a dot would make paths ambiguous."""
    return _NAME.fullmatch(word) is not None


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Suggest the nearest known word, else list them.

    >>> did_you_mean("adress", ["address", "kind"])
    "did you mean 'address'?"
    """
    words = sorted(known)
    near = get_close_matches(word, words, n=1)
    return f"did you mean '{near[0]}'?" if near else f"known here: {', '.join(words)}"


def _fits(path: tuple[str, ...], steps: tuple[str, ...]) -> bool:
    if len(path) > len(steps):
        return False
    return all(is_name(p) if s == "*" else s == p for p, s in zip(path, steps, strict=False))
