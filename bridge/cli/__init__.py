"""The command line: `bridge demo`, `coverage`, `conform`, `bench`, `report`, `cache`, `ops`, `doctor`, `experiment`."""

from bridge.cli import bench, commands, conform, coverage, experiment, ops
from bridge.cli.app import app, main

__all__ = ["app", "bench", "commands", "conform", "coverage", "experiment", "main", "ops"]
