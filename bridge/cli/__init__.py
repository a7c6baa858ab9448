"""The command line: `bridge demo`, `coverage`, `bench`, `report`, `cache`, `ops`, `doctor`."""

from bridge.cli import bench, commands, coverage
from bridge.cli.app import app, main

__all__ = ["app", "bench", "commands", "coverage", "main"]
