"""Torch's ModuleInfo database as calls: modules of `torch.nn`, in training and in evaluation, with their parameters."""

from __future__ import annotations

import random
from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import torch
from torch import nn
from torch.testing._internal.common_modules import ModuleInfo, module_db
from torch.utils._pytree import tree_map

import bridge
from experiments.conformance.samples import Sample, copied, seeded

MODULES: dict[str, ModuleInfo] = {info.name: info for info in module_db}
"""The modules by name: "nn.Linear" and so on."""


class ModuleSample(Sample):
    """One call of a module. The arguments are the module itself, and what it is called with."""

    def fresh(self) -> Any:
        """The arguments with tensors of their own; a module with parameters of its own."""
        return tree_map(lambda v: deepcopy(v) if isinstance(v, nn.Module) else copied(v), self.arguments)

    def compiled(self, arguments: Any, symbolic: bool) -> tuple[Any, Any]:
        module = bridge.compile(arguments[0], dynamic=symbolic)
        return module, lambda _, args, kwargs: module(*args, **kwargs)


def module_names(dtype: torch.dtype) -> list[str]:
    """The modules that torch's CPU kernels support in a type."""
    return [name for name, info in MODULES.items() if dtype in info.supported_dtypes("cpu")]


def module_samples(name: str, dtype: torch.dtype, count: int) -> Iterator[Sample]:
    """So many of torch's samples, the same at each run; in evaluation too, where that is something else."""
    info = MODULES[name]
    for training in (True, False) if info.train_and_eval_differ else (True,):
        seeded()
        found = info.module_inputs_func(info, "cpu", dtype, requires_grad=True, training=training)
        others = range(1, len(found))
        chosen = [0, *sorted(random.Random(name).sample(others, min(count - 1, len(others))))] if found else []
        for index in chosen:
            given, call = found[index].constructor_input, found[index].forward_input
            seeded()
            module = info.module_cls(*given.args, **given.kwargs).to(dtype).train(training)
            mode = "training" if training else "evaluation"
            yield ModuleSample(f"sample {index} in {mode}", _run, (module, tuple(call.args), dict(call.kwargs)))


def _run(module: nn.Module, args: Any, kwargs: Any) -> Any:
    return module(*args, **kwargs)
