"""What is wrong with an expression: where in its text, what, why, and how to repair it."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.errors import InvalidExpression
from penstock.pipeline.plan.nodes import Node

__all__ = ["ExpressionFinding", "ExpressionReading"]


@dataclass(frozen=True, slots=True)
class ExpressionFinding:
    """One error in an expression; `position` counts characters from 0."""

    position: int
    what: str
    why: str = ""
    fix: str = ""

    def error(self, path: str | None = None) -> InvalidExpression:
        """Give the finding as the exception that stops a caller who wants only the plan."""
        return InvalidExpression(
            self.what, path=path, position=self.position, why=self.why or None, next=self.fix or None
        )


@dataclass(frozen=True, slots=True)
class ExpressionReading:
    """A plan expression, or the findings that say why there is none."""

    node: Node | None
    findings: tuple[ExpressionFinding, ...] = ()

    def expression(self, path: str | None = None) -> Node:
        """Give the expression; InvalidExpression for the first finding."""
        if self.node is None or self.findings:
            raise self.findings[0].error(path)
        return self.node
