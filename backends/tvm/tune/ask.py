"""The asker's side of a search: shows how far it is, ends it on Ctrl-C, and takes over what was found.

Nothing that goes wrong here is a failure of the build: the kernels that our rules made are there already.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from bridge.backends.tvm.tune.notes import NOTES, STOP
from bridge.backends.tvm.tune.notes import Progress as Notes
from bridge.errors import WorkerFailure
from bridge.options import Options
from bridge.runtime.worker import shared

TUNER = "bridge.backends.tvm.tune.work"
"""The module that runs in the tuner."""

GLANCE = 0.1
"""Seconds between two looks at how far the search is."""

LIBRARY = "kernels.so"


def tuned(request: Mapping[str, Any], module: str, folder: Path, options: Options) -> dict[str, Any]:
    """Search for better kernels of what was built into a folder.

    Gives {"tuned": what came of each kernel, "stopped": whether it was interrupted}, or {"failed": the reason}.
    """
    ours = (folder / LIBRARY).read_bytes()
    asked = folder / "module.json"
    asked.write_text(module)
    told = {
        **{key: value for key, value in request.items() if key != "unaligned"},
        **{"module": str(asked), "folder": str(folder), "tune": options.tune, "keeps": options.cache},
        "threads": torch.get_num_threads(),
    }
    try:
        found = _answer(told, folder, options)
    except WorkerFailure as failure:
        (folder / LIBRARY).write_bytes(ours)  # the tuner may have died while it wrote
        found = {**_found_before(told, folder, options), "failed": f"the search {failure.kind}: {failure.detail}"}
    for name in ("module.json", NOTES, f"{NOTES}.new", STOP):  # after a second Ctrl-C the tuner still has to see STOP
        (folder / name).unlink(missing_ok=True)
    return found


def _found_before(told: dict[str, Any], folder: Path, options: Options) -> dict[str, Any]:
    """What is known of the kernels without a search, and so what one that failed had found until then."""
    if not options.cache:
        return {}
    ours = (folder / LIBRARY).read_bytes()
    try:
        return shared(TUNER).call({**told, "tune": 0}, options.timeout)
    except WorkerFailure:
        (folder / LIBRARY).write_bytes(ours)
        return {}


def _answer(told: dict[str, Any], folder: Path, options: Options) -> dict[str, Any]:
    """The tuner's answer. The first Ctrl-C ends the search, the second is the user's."""
    outcome: list[Any] = []

    def ask() -> None:
        try:
            outcome.append(shared(TUNER).call(told, options.tune + options.timeout))
        except BaseException as failure:
            outcome.append(failure)

    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    with _shown(options.tune) as show:
        while asking.is_alive():
            try:
                asking.join(GLANCE)
                show(Notes(folder).read())
            except KeyboardInterrupt:
                if (folder / STOP).exists():
                    raise
                (folder / STOP).touch()
    (answer,) = outcome
    if isinstance(answer, BaseException):
        raise answer
    return answer


@contextmanager
def _shown(seconds: float) -> Iterator[Any]:
    """A line on the terminal, gone when the search is over."""
    console = Console(stderr=True)
    columns = SpinnerColumn(), TextColumn("searching schedules (Ctrl-C ends it)"), BarColumn()
    progress = Progress(
        *columns,
        TextColumn("{task.description}"),
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
    with progress:
        line = progress.add_task("", total=seconds)
        started: list[float] = []

        def show(text: str) -> None:
            if text and not started:
                started.append(time.monotonic())
            done = time.monotonic() - started[0] if started else 0.0
            progress.update(line, description=text, completed=min(done, seconds))

        yield show
