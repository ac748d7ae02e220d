"""The process in which a function runs: `python -m penstock.pipeline.functions.child IN OUT MARK`.

The first frame says what to load; the answer is `ready` or `unusable`. Every other frame is a batch; the
answer is `done` with an outcome a record, or `failed`. When the worker is gone, so is this process: a thread
waits at the pipe all the time, also while the function hangs.
"""

from __future__ import annotations

import faulthandler
import os
import sys
import threading
import traceback
from queue import SimpleQueue
from typing import Any

from penstock.errors import PipelineError
from penstock.pipeline.functions.frames import dump, read_frame, write_frame
from penstock.pipeline.functions.logs import InvocationLog
from penstock.pipeline.functions.parcels import opened
from penstock.pipeline.functions.program import LONGEST_TEXT, Program, legible, load_function
from penstock.pipeline.functions.progress import Progress, ProgressMark

__all__ = ["main"]


def main(arguments: list[str]) -> None:
    """Serve one worker until it hangs up."""
    inbox, outbox, mark = (int(argument) for argument in arguments)
    os.dup2(2, 1)  # what C code prints must not be lost, and nothing but frames goes to the worker
    faulthandler.enable(file=2)
    frames: SimpleQueue[Any] = SimpleQueue()
    threading.Thread(target=_listen, args=(inbox, frames), daemon=True).start()
    settings, progress = frames.get(), Progress(ProgressMark(mark))
    log = InvocationLog(settings["route"], progress)
    log.install()
    try:
        program = _load(settings)
    except BaseException as exc:  # noqa: BLE001 - a module of the user may raise anything
        write_frame(outbox, dump(("unusable", legible(_traceback(exc)))))
        return
    write_frame(outbox, dump(("ready",)))
    while True:
        write_frame(outbox, _answer(program, frames.get(), progress, log, settings["largest"]))


def _listen(inbox: int, frames: SimpleQueue[Any]) -> None:
    try:
        while True:
            frames.put(read_frame(inbox))
    except (EOFError, OSError):
        os._exit(0)


def _load(settings: dict[str, Any]) -> Program:
    function, key = settings["function"], settings["key"]
    return Program(
        route=settings["route"],
        function=load_function(function) if function else None,
        key=load_function(key) if key else None,
    )


def _answer(program: Program, parcels: Any, progress: Progress, log: InvocationLog, largest: int) -> bytes:
    try:
        records = [opened(parcel) for parcel in parcels]
        progress.begin(records)
        log.begin()
        frame = dump(("done", program(records, progress)))
    except PipelineError as exc:
        return _failed("function-result", str(exc), progress)
    except BaseException as exc:  # noqa: BLE001 - SystemExit and MemoryError too: the batch is to blame
        return _failed("function-error", _traceback(exc), progress)
    if len(frame) > largest:
        return _failed("function-output", f"{len(frame)} bytes of output; the limit is {largest}", progress)
    return frame


def _failed(code: str, reason: str, progress: Progress) -> bytes:
    return dump(("failed", code, legible(reason)[-LONGEST_TEXT:], progress.number))


def _traceback(exc: BaseException) -> str:
    """Write an exception as Python does, without the frames of this package."""
    trace = exc.__traceback__
    while trace is not None and os.path.dirname(trace.tb_frame.f_code.co_filename) == _HERE:
        trace = trace.tb_next
    return "".join(traceback.format_exception(type(exc), exc, trace))[-LONGEST_TEXT:]


_HERE = os.path.dirname(__file__)

if __name__ == "__main__":
    main(sys.argv[1:])
