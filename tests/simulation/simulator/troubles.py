"""What goes wrong with the brokers of a simulated Kafka, and how it ends."""

from __future__ import annotations

from collections.abc import Callable

from simulator.kafka import Kafka
from simulator.kafka_world import KafkaHistory

__all__ = ["Troubles"]


class Troubles:
    """Faults by chance, each of which passes by."""

    def __init__(self, history: KafkaHistory) -> None:
        self._history = history
        self._random = history.random
        self._ended = False
        for kafka in history.kafkas:
            kafka.links.trouble = self._random.choice((0.0, 0.01, 0.05))
            kafka.refusals = self._random.choice((0.0, 0.02, 0.1))

    @property
    def _kafka(self) -> Kafka:
        """One of the clusters; of one nothing is left to chance."""
        kafkas = self._history.kafkas
        return kafkas[0] if len(kafkas) == 1 else self._random.choice(kafkas)

    @property
    def all(self) -> tuple[Callable[[], None], ...]:
        """Each of them."""
        kafka = (self.broker, self.leader, self.no_leader, self.coordinator, self.cut, self.silence)
        return (*kafka, *self._history.troubles)

    def broker(self) -> None:
        """A broker dies, and comes back."""
        kafka = self._kafka
        node = self._random.choice(kafka.nodes)
        if kafka.is_up(node):
            kafka.stop(node)
            self._history.world.after(self._random.choice((0.5, 5.0, 30.0, 90.0)), lambda: kafka.start(node))

    def leader(self) -> None:
        """A partition gets another leader."""
        kafka = self._kafka
        place = self._random.choice(sorted(kafka.partitions))
        self._history.note("kafka", f"the leader of {place[0]}-{place[1]} moves")
        kafka.move_leader(place)

    def no_leader(self) -> None:
        """A partition has no leader for a while."""
        kafka = self._kafka
        place = self._random.choice(sorted(kafka.partitions))
        kafka.take_away(place, self._random.choice((4.0, 30.0, 80.0)))

    def coordinator(self) -> None:
        """The coordinator is away."""
        self._kafka.send_coordinator_away(self._random.choice((0.2, 10.0, 70.0)))

    def cut(self) -> None:
        """Connections are cut."""
        for link in self._kafka.links.of():
            if self._random.random() < 0.5:
                self._history.note(link.program.name, f"its connection to {link.node} is cut")
                link.cut()

    def silence(self) -> None:
        """A connection goes silent."""
        links = self._kafka.links.of()
        if links:
            link = self._random.choice(links)
            self._history.note(link.program.name, f"its connection to {link.node} is silent")
            link.go_silent()

    def end(self) -> None:
        """Let everything work again."""
        self._history.mend()
        if self._ended:
            return
        self._ended = True
        self._history.note("kafka", "no more faults")
        for kafka in self._history.kafkas:
            kafka.links.trouble = kafka.refusals = 0.0
            kafka.mend()
        for program in self._history.world.programs:
            program.let_wake()
