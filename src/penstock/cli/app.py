"""The root command: the table of verbs, the global options, and the one error boundary.

A verb is a row of VERBS: its name, where it lives as "module:attribute", and its line in the help. The
module is imported when the verb is called, never for the help. The attribute is `app`, a `typer.Typer`
(with one command it is that command), or `command`, a function with typer's annotations. A verb raises
PenstockError when it fails, or `typer.Exit(code)` when the code is its answer; it prints through
`penstock.cli.output` only. The global options may stand before or after the verb, unless the verb has
an option of that name.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from penstock import __version__
from penstock.cli import output
from penstock.cli.extras import missing_extra
from penstock.cli.process import as_machine_error, discard_stdout, end_by_signals, open_streams
from penstock.cli.settings import Format, current, scope, use
from penstock.errors import InternalError, PenstockError, UsageError

if TYPE_CHECKING:
    from typer._click import Command, Context, HelpFormatter

__all__ = ["VERBS", "Verb", "main"]

BROKEN_PIPE = 141
TRACEBACK_VERBOSITY = 2


@dataclass(frozen=True, slots=True)
class Verb:
    """One word of the command line: where it lives, its line in the help, and under which heading."""

    target: str
    help: str
    section: str


VERBS: Mapping[str, Verb] = {
    "demo": Verb("penstock.cli.demo:command", "See it work on embedded servers", "Start"),
    "dev": Verb("penstock.cli.dev:app", "Run Kafka, Pulsar, registry and gateway on this machine", "Start"),
    "validate": Verb("penstock.cli.validate:command", "Check a contract against its rules", "Contract"),
    "plan": Verb("penstock.cli.plan:command", "Show what a contract would change", "Contract"),
    "apply": Verb("penstock.cli.apply:command", "Change the clusters to what the contract says", "Contract"),
    "drift": Verb(
        "penstock.cli.drift:command", "Say whether clusters and contract have moved apart", "Contract"
    ),
    "explain": Verb(
        "penstock.cli.explain:command", "Say what the code of an error or a rule means", "Contract"
    ),
    "run": Verb("penstock.cli.run:command", "Run the routes of a pipeline on Spark", "Pipeline"),
    "test": Verb("penstock.cli.test:command", "Run a pipeline on sample events, in memory", "Pipeline"),
    "routes": Verb("penstock.cli.routes:command", "Draw the routes of a pipeline", "Pipeline"),
    "package": Verb("penstock.cli.package:command", "Pack a pipeline for a Spark cluster", "Pipeline"),
    "dlq": Verb("penstock.cli.dlq:app", "Look at dead letters and bring records back", "Pipeline"),
    "gateway": Verb("penstock.cli.gateway:command", "Serve Kafka clients from Pulsar", "Gateway"),
    "publish": Verb("penstock.cli.publish:command", "Send events to Kafka or Pulsar", "Events"),
    "tail": Verb("penstock.cli.tail:command", "Show the events of a topic as they come", "Events"),
    "topics": Verb("penstock.cli.topics:command", "List the topics of Kafka and Pulsar", "Events"),
    "groups": Verb("penstock.cli.groups:app", "Show who reads topics and how far; move groups", "Events"),
    "event": Verb("penstock.cli.event:app", "Encode, decode, check and convert events offline", "Events"),
    "context": Verb("penstock.cli.context:app", "List, show and choose sets of servers", "Settings"),
    "config": Verb("penstock.cli.config:app", "Show every setting with its origin", "Settings"),
    "doctor": Verb(
        "penstock.cli.doctor:command", "Check this machine, the clusters and the contract", "Machine"
    ),
    "version": Verb(
        "penstock.cli.version:command", "Print the versions of Penstock and its parts", "Machine"
    ),
}


class Verbs(TyperGroup):
    """A group that knows its commands by name and loads the one that is called."""

    def list_commands(self, ctx: Context) -> list[str]:
        """Name the verbs without importing them."""
        return list(VERBS)

    def get_command(self, ctx: Context, cmd_name: str) -> Command | None:
        """Load one verb; None if there is no such verb."""
        verb = VERBS.get(cmd_name)
        return None if verb is None else _load(cmd_name, verb)

    def resolve_command(self, ctx: Context, args: list[str]) -> tuple[str | None, Command | None, list[str]]:
        """Find the verb, or say which one was probably meant."""
        name = args[0]
        if name not in VERBS and not name.startswith("-"):
            near = get_close_matches(name, VERBS, n=1)
            advice = f"penstock {near[0]}" if near else "penstock --help lists the verbs"
            raise UsageError(f"there is no verb '{name}'", next=advice)
        return super().resolve_command(ctx, args)

    def format_options(self, ctx: Context, formatter: HelpFormatter) -> None:
        """Write the verbs by section, then the options."""
        width = max(map(len, VERBS))
        for section in dict.fromkeys(verb.section for verb in VERBS.values()):
            with formatter.section(section):
                formatter.write_dl(
                    [(n.ljust(width), v.help) for n, v in VERBS.items() if v.section == section]
                )
        super().format_options(ctx, formatter)

    def format_commands(self, ctx: Context, formatter: HelpFormatter) -> None:
        """Write nothing: the verbs stand above the options."""


def _load(name: str, verb: Verb) -> Command:
    module, attribute = verb.target.split(":")
    target = getattr(importlib.import_module(module), attribute)
    app = target if isinstance(target, typer.Typer) else _single(target)
    command = typer.main.get_command(app)
    command.name = name
    _adopt(command)
    return command


def _single(function: Callable[..., Any]) -> typer.Typer:
    app = typer.Typer(add_completion=False)
    app.command()(function)
    return app


def _adopt(command: Command) -> None:
    """Give a command and its subcommands the plain help and the global options."""
    command.rich_markup_mode = None  # type: ignore[attr-defined]
    command.params = [p for p in command.params if p.name not in ("install_completion", "show_completion")]
    _accept_globals(command)
    for child in getattr(command, "commands", {}).values():
        _adopt(child)


def _accept_globals(command: Command) -> None:
    """Let the global options stand behind the verb too; what the verb itself defines stays its own."""
    taken = {word for param in command.params for word in (param.name, *param.opts, *param.secondary_opts)}
    extra = [param for param in _global_options() if not taken & {param.name, *param.opts}]
    names = [str(param.name) for param in extra]
    inner = command.callback

    def callback(**values: Any) -> Any:
        _apply({name: values.pop(name) for name in names})
        return inner(**values) if inner else None

    command.callback = callback
    command.params.extend(extra)
    command.epilog = command.epilog or "Global options: penstock --help"


def _global_options() -> list[Any]:
    """Make the options of the root once more, without a line in the help."""
    options: list[Any] = [p for p in typer.main.get_command(root).params if p.name != "version"]
    for option in options:
        option.hidden = True
    return options


def _apply(flags: Mapping[str, Any]) -> None:
    use(current().merged(**flags))
    if current().verbosity:
        output.show_logs(debug=current().verbosity >= TRACEBACK_VERBOSITY)


def _print_version(asked: bool) -> None:
    if asked:
        output.data(f"penstock {__version__}")
        raise typer.Exit


ContextName = Annotated[
    str | None, typer.Option("-C", "--context", metavar="NAME", help="Use this context of penstock.yaml.")
]
ContractFile = Annotated[
    Path | None,
    typer.Option(
        "-f", "--contract", metavar="FILE", help="AsyncAPI document (asyncapi.yaml, found upwards)."
    ),
]
Overrides = Annotated[
    list[str] | None, typer.Option("-X", metavar="KEY=VALUE", help="Change one setting; may be repeated.")
]
Output = Annotated[Format | None, typer.Option("-o", "--output", help="Form of the data on stdout.")]
Quiet = Annotated[bool, typer.Option("-q", "--quiet", help="No talk on stderr, errors only.")]
Verbose = Annotated[
    int, typer.Option("-v", "--verbose", count=True, show_default=False, help="More talk; twice: tracebacks.")
]
NoColor = Annotated[bool, typer.Option("--no-color", help="No colour; NO_COLOR does the same.")]
Yes = Annotated[bool, typer.Option("--yes", help="Answer every question with yes.")]
Version = Annotated[
    bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
]

root = typer.Typer(
    cls=Verbs,
    add_completion=False,
    rich_markup_mode=None,
    no_args_is_help=True,
    subcommand_metavar="VERB [ARGS]...",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


@root.callback()
def _root(
    context: ContextName = None,
    contract: ContractFile = None,
    overrides: Overrides = None,
    output_format: Output = None,
    quiet: Quiet = False,
    verbose: Verbose = 0,
    no_color: NoColor = False,
    yes: Yes = False,
    version: Version = False,
) -> None:
    """Carry CloudEvents across Kafka and Pulsar."""
    flags = dict(locals())
    del flags["version"]
    _apply(flags)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit code; every failure ends here as a block on stderr.

    With `-o json` that is one JSON object on one line. SIGTERM and SIGHUP end the verb as Ctrl-C does.
    """
    args = list(sys.argv[1:] if argv is None else argv)
    open_streams()
    with scope(), end_by_signals() as ended:
        try:
            _run([*args])  # the parser takes words out of its list
        except typer.Exit as answer:
            return answer.exit_code
        except BrokenPipeError:
            discard_stdout()
            return BROKEN_PIPE
        except (KeyboardInterrupt, typer.Abort):
            output.talk("interrupted")
            return ended.exit_code
        except Exception as exc:  # noqa: BLE001 - the one boundary: a person never sees a raw traceback
            return _fail(exc, args)
    return 0


def _run(args: list[str]) -> None:
    command = typer.main.get_command(root)
    try:
        with command.make_context("penstock", args) as ctx:
            command.invoke(ctx)
    finally:
        output.flush()  # here, where a reader that is gone is known to be no failure


def _fail(exc: Exception, args: Sequence[str]) -> int:
    if _wants_json(args):  # also where the command line was not understood, so that no flag was applied
        use(current().merged(output_format=Format.JSON))
    error = _as_penstock_error(exc, args)
    if error is None:  # it was a help text
        return UsageError.exit_code
    if current().verbosity >= TRACEBACK_VERBOSITY:
        import traceback

        output.talk("".join(traceback.format_exception(exc)).rstrip())
    output.error(error)
    return error.exit_code


def _as_penstock_error(exc: Exception, args: Sequence[str]) -> PenstockError | None:
    if isinstance(exc, PenstockError):
        return exc
    if isinstance(exc, typer.TyperException):
        return _usage_error(exc, args)
    if isinstance(exc, ModuleNotFoundError) and (missing := missing_extra(exc, args)) is not None:
        return missing
    if isinstance(exc, OSError) and not isinstance(exc, TimeoutError):
        return as_machine_error(exc)
    return InternalError(
        f"internal error: {type(exc).__name__}: {exc}",
        why="This is a bug in Penstock, not in what you did.",
        next="run the same command with -v -v to see the traceback, and report it",
    )


def _usage_error(exc: typer.TyperException, args: Sequence[str]) -> UsageError | None:
    context = getattr(exc, "ctx", None)
    # An option without its value is refused before there is a context: the verb is the first one named.
    verb = next((f"penstock {word}" for word in args if word in VERBS), "penstock")
    path = context.command_path if context else verb
    if exc.message.startswith("Usage:"):  # a group without a subcommand answers with its help
        output.talk(exc.message)
        return None
    # Enumerations are checked by pydantic, which puts the kind of its error in front of the sentence.
    return UsageError(exc.format_message().replace("Value error, ", "", 1), next=f"{path} --help")


def _wants_json(args: Sequence[str]) -> bool:
    pairs = {(word, following) for word, following in zip(args, args[1:], strict=False)}
    alone = {"-ojson", "--output=json"} & set(args)
    return bool(alone) or not pairs.isdisjoint({("-o", "json"), ("--output", "json")})
