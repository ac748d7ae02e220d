"""The only place that prints: stdout is data, stderr is talk.

Without a terminal there is no colour, no bar and no line is cut. Text that came from outside loses
its control characters before it reaches a terminal, so that a topic cannot steer the screen.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from time import monotonic
from typing import TYPE_CHECKING, Literal, Protocol, TextIO

from penstock.cli.process import as_machine_error, discard_stdout
from penstock.cli.settings import Format, current
from penstock.errors import PenstockError

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

__all__ = [
    "Item",
    "Progress",
    "checklist",
    "data",
    "data_bytes",
    "document",
    "error",
    "flush",
    "interactive",
    "live_table",
    "progress",
    "rows",
    "show_logs",
    "status",
    "talk",
]

_CONTROLS = {
    code: f"\\x{code:02x}" for code in (*range(0x20), 0x7F, *range(0x80, 0xA0)) if code not in (9, 10)
}
# Marks of direction make a name look like another one on the screen.
_CONTROLS |= {
    code: f"\\u{code:04x}"
    for code in (0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
}
_UNLIMITED_COLUMNS = 100_000


def data(text: str) -> None:
    """Write one line of data to stdout; piped, it is exactly `text`."""
    _end_status()
    _write(_harmless(text) if sys.stdout.isatty() else text)


def data_bytes(raw: bytes) -> None:
    """Write bytes to stdout as they are, with nothing added."""
    with _to_stdout():
        sys.stdout.flush()
        sys.stdout.buffer.write(raw)
        sys.stdout.buffer.flush()


def flush() -> None:
    """Write the buffer of stdout; MachineError if that cannot be, BrokenPipeError if nobody reads."""
    with _to_stdout():
        sys.stdout.flush()


def _write(text: str) -> None:
    with _to_stdout():
        print(text, file=sys.stdout)


@contextmanager
def _to_stdout() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as exc:
        discard_stdout()
        raise as_machine_error(exc, where="standard output") from exc


def talk(text: str) -> None:
    """Say something to the person on stderr; `-q` silences it."""
    if not current().quiet:
        _end_status()
        _say(_harmless(text))


def status(text: str) -> None:
    """Say what happens now: on a terminal over the status before, elsewhere as a line of talk."""
    if current().quiet or not sys.stderr.isatty():
        talk(text)
        return
    width = os.get_terminal_size(sys.stderr.fileno()).columns
    _say(f"{_CLEAR}{_harmless(text)[: max(1, width - 1)]}", end="")
    _STATUS.append(text)


def _end_status() -> None:
    """Leave the last status where it is and go to the next line."""
    if _STATUS:
        _STATUS.clear()
        _say("")


def _say(text: str, end: str = "\n") -> None:
    # A terminal that was closed or a full disk takes no talk, and nobody is left to be told of that.
    with suppress(OSError):
        print(text, end=end, file=sys.stderr, flush=True)


_CLEAR = "\r\x1b[2K"
_STATUS: list[str] = []
"""What stands on the terminal's last line."""


def show_logs(*, debug: bool, times: bool = False) -> None:
    """Let what the layers below log be part of the talk; what other libraries log stays away."""
    import logging

    class Talk(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            talk(self.format(record))

    class Lines(logging.Formatter):
        def formatMessage(self, record: logging.LogRecord) -> str:
            # What a client sends may be in it: no line but the first begins as a record does.
            return super().formatMessage(record).replace("\n", "\n  ")

    logger, loop = logging.getLogger("penstock"), logging.getLogger("asyncio")
    handler = Talk()
    clock = "%(asctime)s " if times else ""
    handler.setFormatter(Lines(f"{clock}%(levelname)s %(name)s: %(message)s"))
    logger.handlers = loop.handlers = [handler]  # what a loop logs is a bug of ours
    logger.setLevel(logging.DEBUG if debug else logging.INFO)
    loop.propagate = False
    # py4j reports to the root logger, with a traceback, that Ctrl-C came while it waited for Java. A root
    # logger without a handler would print that.
    root = logging.getLogger()
    if not any(isinstance(each, logging.NullHandler) for each in root.handlers):
        root.addHandler(logging.NullHandler())


def error(exc: PenstockError) -> None:
    """Print an error as a block: what, where, why, next; with `-o json` as one JSON object on one line."""
    if current().output is Format.JSON:
        _say(_error_object(exc))
        return
    paint = _painter(sys.stderr)
    lines = [f"{paint('error', 'bold red')}[{exc.code}] {paint(_harmless(exc.what), 'bold')}"]
    if exc.where:
        lines.append(f"  {paint('-->', 'blue')} {_harmless(exc.where)}")
    if exc.why:
        lines += [f"  {line}" for line in _harmless(exc.why).splitlines()]
    lines.append(f"  {paint('next:', 'green')} {_next(exc)}")
    _say("\n".join(lines))


def _error_object(exc: PenstockError) -> str:
    import json

    fields = {"what": exc.what, "where": exc.where, "why": exc.why, "next": exc.next}
    found = {"code": exc.code, "kind": type(exc).__name__, "exit_code": exc.exit_code, **fields}
    return json.dumps({"error": found}, ensure_ascii=True)


def document(value: object, fmt: str) -> None:
    """Print any JSON-like value as json or yaml."""
    data(_DOCUMENT[Format(fmt)](value))


def rows(
    columns: Sequence[str], rows: Iterable[Sequence[object]], fmt: str, title: str | None = None
) -> None:
    """Print rows as a table for people, or as json or yaml objects keyed by the column names."""
    if Format(fmt) is Format.TABLE:
        _print_table(columns, rows, title)
        return
    keys = [name.lower().replace(" ", "_") for name in columns]
    document([dict(zip(keys, row, strict=True)) for row in rows], fmt)


Item = tuple[bool | None, str, str, str | None]
"""A verdict (None is neither good nor bad), a name, a detail, and the command that repairs it."""


def checklist(groups: Mapping[str, Sequence[Item]]) -> None:
    """Print groups of checks, each under its heading, one line per check and one per repair."""
    paint = _painter(sys.stdout)
    width = max(len(name) for items in groups.values() for _, name, _, _ in items)
    for heading, items in groups.items():
        _write(paint(heading, "bold"))
        for verdict, name, detail, repair in items:
            mark, style = _MARKS[verdict]
            _write(f"  {paint(mark, style)} {name:<{width}}  {_harmless(detail)}".rstrip())
            if repair:
                _write(f"    {'':<{width}}  {paint(_harmless(repair), 'bold')}")


_MARKS: Mapping[bool | None, tuple[str, str]] = {
    True: ("✓", "green"),
    False: ("✗", "red"),
    None: ("-", "dim"),
}


def interactive() -> bool:
    """Say whether a person can be asked: both ends are terminals and `--yes` was not given."""
    return sys.stdin.isatty() and sys.stderr.isatty() and not current().yes


class Progress(Protocol):
    """What a task may tell about itself while it runs."""

    def advance(self, amount: float = 1) -> None:
        """Count `amount` more as done."""

    def describe(self, text: str) -> None:
        """Say what is being done now."""


REPORT_SECONDS: float = 10.0
"""How often a task that takes long is reported where there is no terminal."""


@contextmanager
def progress(description: str, total: float | None = None, *, counted: bool = True) -> Iterator[Progress]:
    """Show a task on stderr: a bar on a terminal, lines elsewhere, nothing with `-q`.

    Without a terminal there is one line at the end, and before it one every REPORT_SECONDS. `counted=False`
    is for a total that means nothing by itself, such as a percentage: the bar moves, no number is shown.
    """
    if current().quiet or not sys.stderr.isatty():
        task = _QuietProgress(description, total if counted else None, counted=counted)
        with _reported(task):
            yield task
        talk(task.summary())
        return
    with _bar(description, total, counted=counted) as bar:
        yield bar


@contextmanager
def _reported(task: _QuietProgress) -> Iterator[None]:
    """Say from time to time that a task goes on, also while it waits for something and tells nothing."""
    from contextvars import copy_context
    from threading import Event, Thread

    ended = Event()

    def report() -> None:
        while not ended.wait(REPORT_SECONDS):
            talk(task.report())

    reporter = Thread(target=copy_context().run, args=(report,), daemon=True)
    reporter.start()
    try:
        yield
    finally:
        ended.set()
        reporter.join()


class _QuietProgress:
    """Counts, and says in one line how far the task is."""

    def __init__(self, description: str, total: float | None, *, counted: bool) -> None:
        self.description, self.total, self.counted, self.done = description, total, counted, 0.0
        self.started = monotonic()

    def advance(self, amount: float = 1) -> None:
        self.done += amount if self.counted else 0

    def describe(self, text: str) -> None:
        self.description = text

    def summary(self) -> str:
        return f"{self.description}: {self._count(' in ')}{monotonic() - self.started:.1f} s"

    def report(self) -> str:
        return f"{self.description}: {self._count(', ')}{monotonic() - self.started:.0f} s so far"

    def _count(self, behind: str) -> str:
        if not self.done and not (self.counted and self.total):
            return ""
        of = f" of {self.total:,.0f}" if self.total and self.done < self.total else ""
        return f"{self.done:,.0f}{of}".replace(",", " ") + behind


@contextmanager
def _bar(description: str, total: float | None, *, counted: bool) -> Iterator[Progress]:
    """Draw with rich; imported here because help and pipes never need it."""
    from rich.progress import BarColumn, MofNCompleteColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Display

    numbers = (MofNCompleteColumn(),) if counted else ()
    measured = (BarColumn(bar_width=32), *numbers) if total is not None else ()
    text = TextColumn("{task.description}", markup=False)
    display = Display(
        SpinnerColumn(finished_text="✓"),
        text,
        *measured,
        TimeElapsedColumn(),
        console=_console(sys.stderr),
        redirect_stdout=sys.stdout.isatty(),  # data on its way to a pipe must not be drawn on the terminal
    )
    task = display.add_task(_harmless(description), total=total)

    class Bar:
        def advance(self, amount: float = 1) -> None:
            display.advance(task, amount)

        def describe(self, text: str) -> None:
            display.update(task, description=_harmless(text))

    with display:
        yield Bar()
        if total is None:  # an end that was not known has been reached: let the spinner become a tick
            display.update(task, total=1, completed=1)


@contextmanager
def live_table(
    columns: Sequence[str], *, keep: bool = True
) -> Iterator[Callable[[Iterable[Sequence[object]]], None]]:
    """Give a function that shows a table on stderr over the one before; elsewhere the last one is told.

    Without `keep` nothing is left of it at the end, and nothing told.
    """
    if current().quiet or not sys.stderr.isatty():
        last: list[Sequence[object]] = []

        def note(rows: Iterable[Sequence[object]]) -> None:
            last[:] = rows

        yield note
        for row in last if keep else ():
            pairs = (f"{name} {_cell(cell)}" for name, cell in zip(columns, row, strict=True) if cell != "")
            talk(", ".join(pairs))
        return
    from rich.live import Live

    _end_status()
    with Live(
        console=_console(sys.stderr),
        redirect_stdout=sys.stdout.isatty(),
        auto_refresh=False,
        transient=not keep,
    ) as live:
        yield lambda rows: live.update(
            _table(columns, [tuple(map(_cell, row)) for row in rows], None), refresh=True
        )


def _print_table(columns: Sequence[str], rows: Iterable[Sequence[object]], title: str | None) -> None:
    """Draw without boxes; only a terminal may fold a cell, a pipe gets every line whole."""
    console = _console(sys.stdout)
    with _to_stdout(), console.capture() as captured:
        console.print(_table(columns, [tuple(map(_cell, row)) for row in rows], title))
    _end_status()
    _write("\n".join(line.rstrip() for line in captured.get().splitlines()))


def _table(columns: Sequence[str], cells: Sequence[Sequence[str]], title: str | None) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), title=title, title_justify="left")
    for index, name in enumerate(columns):
        column = {row[index] for row in cells} - {_NAMED_CELLS[None]}
        numeric = bool(column) and all(map(_is_number, column))
        table.add_column(name, justify="right" if numeric else "left", overflow="fold", header_style="bold")
    for row in cells:
        table.add_row(*map(Text, row))
    return table


def _is_number(text: str) -> bool:
    return text.replace(" ", "").replace(".", "", 1).replace("-", "", 1).isdigit()


_NAMED_CELLS: Mapping[object, str] = {None: "-", True: "yes", False: "no"}


def _cell(value: object) -> str:
    named = _NAMED_CELLS.get(value) if value is None or isinstance(value, bool) else None
    return named if named is not None else _harmless(str(value))


def _json(value: object) -> str:
    import json

    return json.dumps(value, indent=2, ensure_ascii=False, default=str)


def _yaml(value: object) -> str:
    import json
    from io import StringIO

    from ruamel.yaml import YAML

    writer = YAML(typ="safe", pure=True)
    writer.default_flow_style = False
    writer.allow_unicode = True
    writer.sort_base_mapping_type_on_output = False  # type: ignore[assignment]
    stream = StringIO()
    writer.dump(json.loads(json.dumps(value, default=str)), stream)
    return stream.getvalue().rstrip("\n")


_DOCUMENT: Mapping[Format, Callable[[object], str]] = {
    Format.TABLE: _json,
    Format.JSON: _json,
    Format.YAML: _yaml,
}


def _harmless(text: str) -> str:
    r"""Write control characters visibly.

    >>> _harmless("a\x1b[31mb\tc")
    'a\\x1b[31mb\tc'
    """
    return text.translate(_CONTROLS)


def _next(exc: PenstockError) -> str:
    more = f"more: penstock explain {exc.code}"
    return f"{_harmless(exc.next)}; {more}" if exc.next else more


_ANSI = {"bold": "1", "bold red": "1;31", "blue": "34", "green": "32", "red": "31", "dim": "2"}


def _painter(stream: TextIO) -> Callable[[str, str], str]:
    """Colour without rich: an error must be cheap and must not fail."""
    if not _colored(stream):
        return lambda text, _style: text
    return lambda text, style: f"\x1b[{_ANSI[style]}m{text}\x1b[0m"


def _colored(stream: TextIO) -> bool:
    # no-color.org: any value that is not empty switches colour off.
    return stream.isatty() and current().color and not os.environ.get("NO_COLOR")


def _console(stream: TextIO) -> Console:
    from rich.console import Console

    width = None if stream.isatty() else _UNLIMITED_COLUMNS
    colors: Literal["auto"] | None = "auto" if _colored(stream) else None  # no_color=True would leave bold
    return Console(file=stream, color_system=colors, highlight=False, markup=False, emoji=False, width=width)
