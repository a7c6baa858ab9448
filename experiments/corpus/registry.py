"""The table of the corpus: what each model is called, which package has it, and how to make it."""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any, NamedTuple

import torch
from torch import nn

Loss = Callable[[Any], torch.Tensor]
Made = tuple[nn.Module, tuple[Any, ...], dict[str, Any], Loss]
"""A module, the arguments and keyword arguments of a call, and a function from the call's result to the loss."""


class Meta(NamedTuple):
    """Where a model comes from (an import name), and what it is for."""

    package: str
    domain: str


MODELS: dict[str, Callable[..., Made]] = {}
"""By name: a function of the seed, 0 if not given, that fixes weights and inputs."""

META: dict[str, Meta] = {}

SKIPPED: dict[str, str] = {}
"""The models that cannot be made here, and why."""

for _variable in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"):
    os.environ.setdefault(_variable, "1")  # nothing is downloaded: all weights are random
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")


def seeded(make: Callable[[], Made]) -> Callable[..., Made]:
    """The same with a seed to give, and the module in training mode."""

    def from_seed(seed: int = 0) -> Made:
        torch.manual_seed(seed)
        module, args, kwargs, loss = make()
        return module.train(), args, kwargs, loss

    return from_seed


def register(name: str, package: str, domain: str) -> Callable[[Callable[[], Made]], Callable[[], Made]]:
    """Enter a model in the table, or among the skipped ones where its package is missing."""

    def keep(make: Callable[[], Made]) -> Callable[[], Made]:
        if find_spec(package) is None:
            SKIPPED[name] = f"package {package} is not installed"
        else:
            MODELS[name] = seeded(make)
            META[name] = Meta(package, domain)
        return make

    return keep
