"""The command line: `bridge demo`, `coverage`, `conform`, `bench`, `report`, `cache`, `ops`, `doctor`."""

from bridge.cli import bench, commands, conform, coverage, ops
from bridge.cli.app import app, main

__all__ = ["app", "bench", "commands", "conform", "coverage", "main", "ops"]
