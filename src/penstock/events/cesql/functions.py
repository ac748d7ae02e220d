"""Functions and the registry that dispatches a call by name and number of arguments (CESQL 1.0.0, 3.5)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from penstock.errors import UsageError
from penstock.events.cesql.result import ErrorKind, Type, Value

__all__ = ["Failed", "Function", "Functions"]


@dataclass(frozen=True, slots=True)
class Failed:
    """What a function returns instead of a value when it could not do all it was asked for.

    3.3: a function that meets an error MUST give a return value as well.
    """

    value: Value
    message: str
    kind: ErrorKind = ErrorKind.FUNCTION_EVALUATION


@dataclass(frozen=True, slots=True, kw_only=True)
class Function:
    """A function that expressions may call; arguments come cast to the parameters' types.

    `rest` is the type of any number of further arguments; without it the arity is fixed.
    """

    name: str
    parameters: tuple[Type, ...] = ()
    rest: Type | None = None
    returns: Type
    call: Callable[..., Value | Failed] = field(compare=False)

    def __post_init__(self) -> None:
        letters = self.name.replace("_", "")
        # 2.4: function-identifier ::= char ( "_" | char )*
        if not (letters.isascii() and letters.isalpha() and self.name[0] != "_"):
            raise UsageError(f"{self.name!r} cannot be the name of a function", why="CESQL 1.0.0, 2.4")
        if self.returns is Type.ANY:
            raise UsageError(f"{self.name} must return String, Integer or Boolean", why="CESQL 1.0.0, 3.1")

    def types(self, count: int) -> tuple[Type, ...]:
        """Give the types that a call with `count` arguments is cast to."""
        return self.parameters + (self.rest or Type.ANY,) * (count - len(self.parameters))


class Functions:
    """An immutable set of functions; `with_functions` gives a larger one.

    >>> from penstock.events.cesql import BUILTINS, evaluate
    >>> mine = Function(name="TWICE", parameters=(Type.INTEGER,), returns=Type.INTEGER, call=lambda n: 2 * n)
    >>> evaluate("twice('21')", {}, functions=BUILTINS.with_functions(mine)).value
    42
    """

    __slots__ = ("_by_name",)

    def __init__(self, *functions: Function) -> None:
        by_name: dict[str, tuple[Function, ...]] = {}
        for function in functions:
            name = function.name.upper()
            by_name[name] = _overloaded(by_name.get(name, ()), function)
        self._by_name: Mapping[str, tuple[Function, ...]] = MappingProxyType(by_name)

    def with_functions(self, *functions: Function) -> Functions:
        """Give these functions and some more; an overload that 3.5 forbids raises UsageError."""
        return Functions(*self, *functions)

    def find(self, name: str, count: int) -> Function | None:
        """Give the function for a call with `count` arguments, or None."""
        fits = (f for f in self._by_name.get(name.upper(), ()) if _takes(f, count))
        return next(fits, None)

    def __iter__(self) -> Iterator[Function]:
        return (function for overloads in self._by_name.values() for function in overloads)


def _takes(function: Function, count: int) -> bool:
    fixed = len(function.parameters)
    return count == fixed or (function.rest is not None and count > fixed)


def _overloaded(known: tuple[Function, ...], new: Function) -> tuple[Function, ...]:
    """Add an overload.

    3.5: at most one variadic definition for a name, and only if its number of initial fixed arguments is
    greater than the maximum arity of all other definitions.
    """
    overloads = (*known, new)
    arities = [len(f.parameters) for f in overloads if f.rest is None]
    variadic = [len(f.parameters) for f in overloads if f.rest is not None]
    if (
        len(set(arities)) < len(arities)
        or len(variadic) > 1
        or any(n <= max(arities, default=-1) for n in variadic)
    ):
        raise UsageError(
            f"two definitions of {new.name} cannot be told apart by their number of arguments",
            why="CESQL 1.0.0, 3.5",
            next="give one of them another name",
        )
    return overloads
