"""The first contact with a Kafka cluster by librdkafka, and what its errors mean, by one table.

librdkafka tries for ever and tells why in a callback: here it gets a few seconds, and the reason is kept.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import Mapping
from time import monotonic
from typing import Any, Final

from penstock.brokers.conditions import START, Condition, made, tls_probe, token_error
from penstock.brokers.kafka_raw.address import parse_addresses
from penstock.brokers.tls import tls_context
from penstock.config import current
from penstock.errors import ClusterError, ConfigError, MissingExtra, Unreachable

__all__ = ["CONNECT_SECONDS", "START", "UNREACHABLE", "Contact", "error_name", "make_client"]

CONNECT_SECONDS: Final = 5.0
"""For the first answer of a cluster."""
_REFUSED_SECONDS: Final = 2.0
"""The same if all its addresses are known to refuse connections."""
_TURN: Final = 0.5

UNREACHABLE: Final = frozenset(
    {
        "_ALL_BROKERS_DOWN",
        "_MSG_TIMED_OUT",
        "_RESOLVE",
        "_TIMED_OUT",
        "_TIMED_OUT_QUEUE",
        "_TRANSPORT",
        "BROKER_NOT_AVAILABLE",
        "NETWORK_EXCEPTION",
        "REQUEST_TIMED_OUT",
    }
)
"""Names of librdkafka and of Kafka's error codes that mean: nobody answered."""
_AUTHENTICATION: Final = frozenset({"_AUTHENTICATION", "_SSL", "SASL_AUTHENTICATION_FAILED"})
_RIGHTS: Final = frozenset(
    {
        "TOPIC_AUTHORIZATION_FAILED",
        "CLUSTER_AUTHORIZATION_FAILED",
        "GROUP_AUTHORIZATION_FAILED",
        "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
    }
)
_NO_MECHANISM: Final = "mechanism handshake failed"
"""What librdkafka says when a broker does not have the SASL mechanism."""
_PASSWORD: Final = "sasl.password"
_TOKEN: Final = "token:"
"""How a gateway is given a token as the password."""
_ADVICE: Final[Mapping[frozenset[str], str]] = {
    frozenset({"INVALID_REPLICATION_FACTOR"}): "lower replicas in the contract, or use an environment",
    frozenset({"POLICY_VIOLATION", "INVALID_CONFIG"}): "correct the topic's settings in the contract",
    frozenset({"INVALID_RECORD"}): "give it a key if the topic is compacted (publish: --key)",
    frozenset({"INVALID_TIMESTAMP"}): "look at message.timestamp settings of the topic, and at the clocks",
    frozenset({"MSG_SIZE_TOO_LARGE"}): "send less at once, or raise max.message.bytes of the topic",
    frozenset(
        {"UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC", "_UNKNOWN_PARTITION"}
    ): "penstock plan shows what is missing, penstock apply makes it",
}

_TLS_FILES: Final[Mapping[str, str]] = {
    "ca_file": "ssl.ca.location",
    "cert_file": "ssl.certificate.location",
    "key_file": "ssl.key.location",
    "key_password": "ssl.key.password",
}

_log = logging.getLogger(__name__)


def make_client(kind: str, options: Mapping[str, Any], name: str) -> Any:
    """Make an AdminClient, Consumer or Producer of confluent-kafka; ConfigError if its options cannot be."""
    try:
        import confluent_kafka.admin
    except ImportError as exc:
        raise MissingExtra("contract", "confluent-kafka", purpose="talking to Kafka") from exc
    make = getattr(confluent_kafka.admin if kind == "AdminClient" else confluent_kafka, kind)
    try:
        # log_level 0: librdkafka would write to stderr what we report ourselves.
        return make({"log_level": "0", **options})
    except (confluent_kafka.KafkaException, TypeError, ValueError) as exc:
        raise ConfigError(
            f"a client of {name} cannot be made", why=str(exc), next="correct this server in the context"
        ) from exc


class Contact:
    """One client and what it has told of its troubles; `name` is the server's, for messages."""

    def __init__(
        self,
        kind: str,
        options: Mapping[str, str],
        *,
        name: str,
        seconds: float = CONNECT_SECONDS,
    ) -> None:
        self.name = name
        self.address = options.get("bootstrap.servers", "")
        self._seconds = seconds
        self._options = options
        self._troubles: dict[str, str] = {}
        self._made = False
        self._password = current(options.get(_PASSWORD, ""))
        login = {_PASSWORD: self._password} if self._password else {}
        self.client = make_client(kind, {**options, **login, "error_cb": self._remember}, name)

    def metadata(self, topic: str | None = None) -> Any:
        """Ask for the brokers and all topics, or one; in short turns: wrong credentials are known soon."""
        from confluent_kafka import KafkaException

        self.renew_login()
        began = monotonic()
        asked = () if topic is None else (topic,)
        while True:
            try:
                found = self.client.list_topics(*asked, timeout=min(_TURN, self._seconds))
            except KafkaException as exc:
                self.serve()
                refused = error_name(exc) not in UNREACHABLE or _AUTHENTICATION & self._troubles.keys()
                if refused or monotonic() - began >= self._patience:
                    raise self.error("cluster", exc.args[0]) from exc
            else:
                self._made = True
                # What went wrong before is not the reason of what goes wrong later.
                self._troubles.clear()
                return found

    @property
    def _patience(self) -> float:
        """Seconds for an answer; few if nobody has ever answered and every address refuses connections."""
        nobody = not self._made and "_ALL_BROKERS_DOWN" in self._troubles
        return min(_REFUSED_SECONDS, self._seconds) if nobody else self._seconds

    @property
    def is_away(self) -> bool:
        """Whether librdkafka has told that no broker is connected, and nobody has answered since."""
        return "_ALL_BROKERS_DOWN" in self._troubles

    @property
    def is_refused(self) -> bool:
        """Whether a login was refused since the password was last read."""
        return bool(_AUTHENTICATION & self._troubles.keys())

    def reason(self) -> str:
        """Why no broker is connected, as librdkafka tells it."""
        return self._troubles.get("_TRANSPORT") or self._troubles.get("_ALL_BROKERS_DOWN") or "no answer"

    def answers(self, topic: str) -> bool:
        """Ask for a topic once; librdkafka tells when brokers go, and not when they are back."""
        from confluent_kafka import KafkaException

        self.renew_login()
        try:
            self.client.list_topics(topic, timeout=_TURN)
        except KafkaException:
            return False
        self._troubles.clear()
        return True

    def require(self) -> None:
        """Raise Unreachable soon if nobody answers: most requests would wait for half a minute first."""
        self.renew_login()
        if not self._made:
            self.metadata()

    def serve(self) -> None:
        """Run the callbacks that wait; raise ClusterError if the client was ended, as for a missing right."""
        from confluent_kafka import KafkaException

        try:
            self.client.poll(0)
        except KafkaException as exc:
            raise self.error("cluster", exc.args[0]) from exc

    def renew_login(self) -> None:
        """Let new connections log in with what the file of the password says now, if it came from one."""
        password = current(self._options.get(_PASSWORD, ""))
        if password != self._password:
            self._password = password
            for word in _AUTHENTICATION:
                self._troubles.pop(word, None)
            self.client.set_sasl_credentials(self._options.get("sasl.username", ""), password)

    def error(self, subject: str, error: Any, *, what: str | None = None) -> ClusterError:
        """Translate an error of librdkafka; `what` is said instead of who refused or did not answer."""
        name, said = str(error.name()), error.str()
        refused = next((word for word in _AUTHENTICATION if word in self._troubles), None)
        if refused is not None and name in UNREACHABLE:
            name, said = refused, self._troubles[refused]
        if name in UNREACHABLE:
            why = self._troubles.get("_TRANSPORT") or self._troubles.get("_RESOLVE") or said
            return Unreachable(what or f"cannot reach {self.name}", where=self.address, why=why, next=START)
        if name in _AUTHENTICATION:
            return self._login_error(name, said)
        if name in _RIGHTS:
            told = what or subject
            return made(Condition.MISSING_RIGHT, where=self.address, why=f"{told}: {said} ({name})")
        advice = next((text for words, text in _ADVICE.items() if name in words), None)
        return ClusterError(
            what or f"{self.name} refused: {subject}", where=self.address, why=f"{said} ({name})", next=advice
        )

    def silence(self, seconds: float) -> ClusterError:
        """Make the error for a request that was not answered in time: why not, if librdkafka has told."""
        self.serve()
        refused = next((word for word in _AUTHENTICATION if word in self._troubles), None)
        if refused is not None:
            return self._login_error(refused, self._troubles[refused])
        return Unreachable(f"{self.name} did not answer in {seconds:g} s", where=self.address, next=START)

    def _login_error(self, name: str, said: str) -> ClusterError:
        if name == "_SSL":
            return self._tls_error(said)
        password = self._password
        if _NO_MECHANISM in said:
            return made(Condition.WRONG_MECHANISM, where=self.address, why=said)
        if password.startswith(_TOKEN):
            return token_error(password.removeprefix(_TOKEN), where=self.address, why=said)
        return made(Condition.WRONG_LOGIN, where=self.address, why=said)

    def _tls_error(self, said: str) -> ClusterError:
        """Say why there is no TLS: librdkafka says the same of every certificate, so we look ourselves."""
        # An empty name is for librdkafka the same as none.
        files = {key: self._options.get(option) or None for key, option in _TLS_FILES.items()}
        context = tls_context(**files) or ssl.create_default_context()
        for host, port in parse_addresses(self.address):
            found = tls_probe(host, port, context, where=self.address)
            if found is not None:
                return found
        return Unreachable(f"cannot reach {self.name}", where=self.address, why=said, next=START)

    def _remember(self, error: Any) -> None:
        self._troubles[error.name()] = error.str()
        if error.name() in _AUTHENTICATION:
            self.renew_login()
        _log.debug("%s: %s", self.name, error.str())


def error_name(exc: Exception) -> str:
    """Give librdkafka's name of the error in an exception."""
    return str(exc.args[0].name())
