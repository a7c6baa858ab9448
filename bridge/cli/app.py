"""What all commands share: the application that they are entered in, its console, and how errors are told."""

from __future__ import annotations

import os
import sys

import typer
from rich.console import Console
from rich.markup import escape

from bridge.errors import BridgeError

app = typer.Typer(add_completion=False, no_args_is_help=True, help="Train PyTorch models through TVM's Relax IR.")
WIDE = 160
"""Columns of what is no terminal, such as a log or a pipe, where a name that is folded is not found again."""
console = Console(width=None if sys.stdout.isatty() or "COLUMNS" in os.environ else WIDE)


def main() -> None:
    """Run the command line; an error of ours or a missing file is told in one line, without a traceback."""
    try:
        app()
    except BridgeError as error:
        complain(str(error))
        raise SystemExit(1) from error


def complain(text: str) -> None:
    """Tell what is wrong, on stderr."""
    Console(stderr=True).print(f"[red]bridge:[/] {escape(text)}", soft_wrap=True)
