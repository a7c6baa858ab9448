"""The command line: `bridge demo`, `coverage`, `report`, `cache`, `ops`, `doctor`."""

from bridge.cli import commands, coverage
from bridge.cli.app import app, main

__all__ = ["app", "commands", "coverage", "main"]
