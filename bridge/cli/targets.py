"""What `bridge coverage` looks at: a function, a file or a name of the corpus, as a model with its arguments."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from bridge.errors import UnknownModel

CORPUS = "experiments.corpus"
"""A module whose `MODELS` are known by name. It is no part of the package: a checkout has it."""
WHOLE_CORPUS = "corpus"

NOT_THERE = 3
"""How the process of a dry run ends where there is no such target; its last line says so."""

FORMS = (
    "give module:function, file.py:function, a .py file that defines make() or model and args, or a name of the corpus"
)


class Target(NamedTuple):
    """A call to look at. loss_fn: from its result to the loss; None for the sum of the floating results."""

    model: Any
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    loss_fn: Any = None


def load(text: str) -> Target:
    """Make the model of a target. Raises UnknownModel if there is none."""
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    name, colon, function = text.partition(":")
    if text.endswith(".py"):
        return _from_file(Path(text))
    if colon:
        module = _loaded(Path(name)) if name.endswith(".py") else _imported(name, text)
        found = getattr(module, function, None)
        if not callable(found):
            raise UnknownModel(f"{text}: the module {name} has no function {function!r}")
        return _target(found(), text)
    models = corpus(text)
    if text not in models:
        near = "".join(f", but {name}" for name in get_close_matches(text, models, 1))
        raise UnknownModel(f"{text}: the corpus has no such model{near}; {FORMS}")
    return _target(models[text](), text)


def corpus(wanted: str = WHOLE_CORPUS) -> Mapping[str, Any]:
    """The models that are known by name. Raises UnknownModel, for the name that was asked for, where there is none."""
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    return _imported(CORPUS, wanted).MODELS


def _imported(name: str, wanted: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise  # the module is there, and lacks another
        raise UnknownModel(f"{wanted}: there is no module {error.name!r} here; {FORMS}") from error


def _loaded(path: Path) -> ModuleType:
    if not path.is_file():
        raise UnknownModel(f"{path}: there is no such file")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None, f"{path} ends in .py"
    assert spec.loader is not None, f"{path} ends in .py"
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(path.resolve().parent))
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def _from_file(path: Path) -> Target:
    module = _loaded(path)
    if hasattr(module, "make"):
        return _target(module.make(), str(path))
    if not hasattr(module, "model"):
        raise UnknownModel(f"{path}: it defines neither make() nor model")
    given = (module.model, getattr(module, "args", ()), getattr(module, "kwargs", {}), getattr(module, "loss_fn", None))
    return _target(given, str(path))


def _target(made: Any, text: str) -> Target:
    """Check what a function gave: (model, args), (model, args, kwargs) or (model, args, kwargs, loss_fn)."""
    if not isinstance(made, tuple) or not 2 <= len(made) <= 4:
        raise UnknownModel(
            f"{text}: it gives {type(made).__name__}, not (model, args), with kwargs and loss_fn or without"
        )
    target = Target(made[0], made[1], *(made[2:] or ({},)))
    if not isinstance(target.args, tuple | list) or not isinstance(target.kwargs, Mapping):
        raise UnknownModel(f"{text}: args has to be a tuple and kwargs a mapping")
    return target._replace(args=tuple(target.args))
