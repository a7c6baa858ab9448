"""`bridge experiment`: run one of the experiments of a checkout."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

from bridge.cli.app import app, complain, console

PACKAGE = "experiments"
"""A folder of a checkout; it is no part of the package."""


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def experiment(
    context: typer.Context,
    name: Annotated[str | None, typer.Argument(help="A folder in experiments/; without one, they are listed.")] = None,
) -> None:
    """Run an experiment. What follows its name is given to it: `bridge experiment maintenance -- --help`."""
    folder = _folder()
    if folder is None:
        complain(
            f"there is no folder {PACKAGE}/ here: it is no part of the package. "
            "Clone the repository and run this command in it"
        )
        raise SystemExit(1)
    known = sorted(path.parent.name for path in folder.glob("*/run.py"))
    if name is None:
        console.print("\n".join(f"{each}: {_first_line(folder / each / 'run.py')}" for each in known), soft_wrap=True)
    elif name not in known:
        raise typer.BadParameter(f"no experiment {name!r}; there are {', '.join(known)}")
    else:
        command = [sys.executable, "-m", f"{PACKAGE}.{name}.run", *context.args]
        raise SystemExit(subprocess.run(command, cwd=folder.parent, check=False).returncode)


def _folder() -> Path | None:
    """The folder of the experiments: of the working directory, or of the checkout that is installed in place."""
    for place in (Path.cwd(), Path(__file__).resolve().parents[2]):
        if (place / PACKAGE / "__init__.py").is_file():
            return place / PACKAGE
    return None


def _first_line(path: Path) -> str:
    return path.read_text(encoding="utf-8").removeprefix('"""').splitlines()[0].removesuffix('"""')
