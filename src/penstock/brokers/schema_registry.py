"""What a schema registry holds and how it is changed, over the API that Confluent defined and others serve.

A refusal keeps the registry's own reason, which Confluent's client hides behind a boolean.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Self
from urllib.parse import quote

from penstock.brokers.rest import Answer, Rest, tls_context
from penstock.errors import ClusterError, ConfigError

__all__ = ["Registered", "SchemaReference", "SchemaRegistry", "Verdict"]

MEDIA_TYPE: Final = "application/vnd.schemaregistry.v1+json"
NOT_FOUND: Final = 404
AVRO: Final = "AVRO"
"""The type that a registry leaves out of its answers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Registered:
    """One version of a subject."""

    version: int
    """0 if the registry was asked by id and does not say."""
    schema_type: str
    """AVRO, JSON or PROTOBUF."""
    schema: str
    id: int | None = field(default=None, compare=False)
    guid: str | None = field(default=None, compare=False)
    """Newer registries have one beside the id."""
    references: tuple[tuple[str, int], ...] = field(default=(), compare=False)
    """Subject and version of each schema that this one refers to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaReference:
    """A schema of another subject that a schema refers to by a name."""

    name: str
    subject: str
    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What the registry thinks of a new version."""

    compatible: bool
    reason: str = ""


References = Sequence[SchemaReference]


class SchemaRegistry:
    """A client of the registry; `options` are named as for Confluent's own client."""

    def __init__(
        self,
        options: Mapping[str, str],
        *,
        name: str = "registry",
        timeout: float = 30.0,
        connect_timeout: float = 5.0,
    ) -> None:
        url = options.get("url")
        if not url:
            raise ConfigError(f"the address of {name} is not known", next="add it to the context")
        tls = tls_context(
            ca_file=options.get("ssl.ca.location"),
            cert_file=options.get("ssl.certificate.location"),
            key_file=options.get("ssl.key.location"),
            key_password=options.get("ssl.key.password"),
        )
        self._rest = Rest(
            url,
            name=name,
            authorization=_authorization(options),
            tls=tls,
            media_type=MEDIA_TYPE,
            timeout=timeout,
            connect_timeout=connect_timeout,
        )

    def close(self) -> None:
        """Close the connections."""
        self._rest.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def subjects(self) -> frozenset[str]:
        """Name all subjects."""
        answer = self._accepted("subjects", self._rest.call("GET", "/subjects"))
        if not isinstance(answer.value, list):
            raise self._strange("subjects", answer)
        return frozenset(map(str, answer.value))

    def latest(self, subject: str) -> Registered | None:
        """Give the newest version of a subject; None if there is none."""
        return self._registered(subject, self._rest.call("GET", f"{_path(subject)}/versions/latest"))

    def versions(self, subject: str) -> tuple[int, ...]:
        """Give the versions of a subject, oldest first; none if there is no such subject."""
        answer = self._rest.call("GET", f"{_path(subject)}/versions")
        if answer.status == NOT_FOUND:
            return ()
        value = self._accepted(f"versions of {subject}", answer).value
        if not isinstance(value, list) or not all(isinstance(each, int) for each in value):
            raise self._strange(f"versions of {subject}", answer)
        return tuple(sorted(value))

    def version(self, subject: str, version: int) -> Registered | None:
        """Give one version of a subject; None if there is none."""
        return self._registered(subject, self._rest.call("GET", f"{_path(subject)}/versions/{version}"))

    def by_id(self, id: int) -> Registered | None:
        """Give the schema with an id, whatever its subject; None if there is none."""
        return self._named(f"id {id}", self._rest.call("GET", f"/schemas/ids/{id}"))

    def by_guid(self, guid: str) -> Registered | None:
        """Give the schema with a GUID; None if there is none, or the registry has no GUIDs."""
        return self._named(f"GUID {guid}", self._rest.call("GET", f"/schemas/guids/{quote(guid)}"))

    def by_global_id(self, number: int) -> Registered | None:
        """Give the schema with one of Apicurio's global ids, by its own API; None if there is none."""
        base = f"{self._rest.base.partition('/apis/')[0]}/apis/registry/v2"
        answer = self._rest.call("GET", f"/ids/globalIds/{number}", base=base)
        if answer.status in _NO_SUCH_NAME:
            return None
        value = self._accepted(f"global id {number}", answer).value
        return Registered(version=0, schema_type=AVRO, schema=json.dumps(value))

    def _named(self, name: str, answer: Answer) -> Registered | None:
        return None if answer.status in _NO_SUCH_NAME else self._registered(name, answer)

    def find(
        self, subject: str, schema_type: str, schema: str, references: References = ()
    ) -> Registered | None:
        """Give the version of a subject that is this schema; None if no version is."""
        body = _body(schema_type, schema, references)
        return self._registered(subject, self._rest.call("POST", _path(subject), body))

    def compatibility(self, subject: str) -> str:
        """Give the level that applies to a subject: its own, else the registry's."""
        answer = self._rest.call("GET", f"/config/{quote(subject, safe='')}")
        if answer.status == NOT_FOUND:
            answer = self._rest.call("GET", "/config")
        value = self._accepted(f"compatibility of {subject}", answer).value
        return str(value.get("compatibilityLevel")) if isinstance(value, dict) else "unknown"

    def check(self, subject: str, schema_type: str, schema: str, references: References = ()) -> Verdict:
        """Ask whether a schema may become the next version of a subject."""
        path = f"/compatibility{_path(subject)}/versions/latest?verbose=true"
        answer = self._rest.call("POST", path, _body(schema_type, schema, references))
        if answer.status in _BAD_SCHEMA:
            return Verdict(compatible=False, reason=answer.reason)
        value = self._accepted(f"check of {subject}", answer).value
        if not isinstance(value, dict) or not isinstance(value.get("is_compatible"), bool):
            raise self._strange(f"check of {subject}", answer)
        return Verdict(compatible=value["is_compatible"], reason=_reason(value))

    def register(self, subject: str, schema_type: str, schema: str, references: References = ()) -> int:
        """Register a schema and give its id; the same schema again gives the same id."""
        body = _body(schema_type, schema, references)
        answer = self._rest.call("POST", f"{_path(subject)}/versions", body)
        value = self._accepted(f"schema of {subject}", answer).value
        if not isinstance(value, dict) or not isinstance(value.get("id"), int):
            raise self._strange(f"schema of {subject}", answer)
        return int(value["id"])

    def _registered(self, subject: str, answer: Answer) -> Registered | None:
        if answer.status == NOT_FOUND:
            return None
        value = self._accepted(f"subject {subject}", answer).value
        try:
            return Registered(
                version=int(value.get("version") or 0),
                schema_type=str(value.get("schemaType") or AVRO),
                schema=str(value["schema"]),
                id=value.get("id"),
                guid=value.get("guid"),
                references=tuple(
                    (str(r["subject"]), int(r["version"])) for r in value.get("references") or ()
                ),
            )
        except (AttributeError, KeyError, TypeError, ValueError) as exc:
            raise self._strange(f"subject {subject}", answer) from exc

    def _accepted(self, subject: str, answer: Answer) -> Answer:
        if not answer.ok:
            raise self._rest.refuse(subject, answer)
        return answer

    def _strange(self, subject: str, answer: Answer) -> ClusterError:
        return ClusterError(
            f"{self._rest.name} gave an answer that cannot be read: {subject}",
            where=self._rest.address,
            why=repr(answer.value)[:200],
            next="check that the address is that of a Confluent-compatible API",
        )


_NO_SUCH_NAME: Final = frozenset({400, 404, 422})
"""A number that the registry could not have given is refused, not missed."""
_BAD_SCHEMA: Final = frozenset({409, 422})


def _reason(value: Mapping[str, Any]) -> str:
    """Confluent gives `messages`, Apicurio gives `reason`."""
    messages = value.get("messages")
    said = "; ".join(map(str, messages)) if isinstance(messages, list) else value.get("reason")
    return str(said or "")[:2_000]


def _authorization(options: Mapping[str, str]) -> str | None:
    token = options.get("bearer.auth.token")
    if token is not None:
        return f"Bearer {token}"
    pair = options.get("basic.auth.user.info")
    return None if pair is None else f"Basic {base64.b64encode(pair.encode()).decode()}"


def _path(subject: str) -> str:
    return f"/subjects/{quote(subject, safe='')}"


def _body(schema_type: str, schema: str, references: References) -> dict[str, object]:
    body: dict[str, object] = {"schema": schema, "schemaType": schema_type}
    if references:
        body["references"] = [asdict(each) for each in references]
    return body
