"""Run a case in eager and through a compiler, and tell every difference.

A case is a module of `programs`:
  make() -> (module or function, arguments)      seeded: two calls give equal objects
  loss(out) -> scalar                            optional; else a weighted sum of all differentiable results
  check(record)                                  optional: what is right, without eager's word for it
  scenario(wrap) -> {name: tensor}               optional: several calls; wrap is the identity or a compiler
  check_scenario(result)                         optional
  BACKWARD = False                               forward only
  EXPECT_RAISES = Exception                      eager raises it
  TOLERANCE = (relative, absolute)
"""

from __future__ import annotations

import dataclasses
import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from tests.cases import programs

Wrap = Callable[[Any], Any]

TOLERANCE = (2e-4, 2e-5)
SEED = 1234


@dataclass(frozen=True)
class Record:
    """What one call, and the backward of its loss, leave behind.

    kinds: the type of each result that is no tensor. arguments, gradients: of the tensor arguments, in order.
    """

    outputs: list[torch.Tensor]
    kinds: list[str]
    requires_grad: list[bool]
    arguments: list[torch.Tensor]
    gradients: list[Any]
    parameter_gradients: dict[str, Any]
    buffers: dict[str, torch.Tensor]
    generator: torch.Tensor


def names() -> list[str]:
    """Every case, in order."""
    return sorted(module.name for module in pkgutil.iter_modules(programs.__path__))


def load(name: str) -> ModuleType:
    """A case by its name."""
    return importlib.import_module(f"{programs.__name__}.{name}")


def eager(program: Any) -> Any:
    """No compiler."""
    return program


def record(case: ModuleType, wrap: Wrap = eager) -> Record:
    """Call the program once, take the backward of its loss, and keep all that can be seen of it."""
    program, arguments = case.make()
    module = program if isinstance(program, torch.nn.Module) else torch.nn.Module()
    given = tensors(arguments)
    torch.manual_seed(SEED)
    result = wrap(program)(*arguments)
    outputs = tensors(result)
    kept = [t.detach().clone() for t in outputs]
    if getattr(case, "BACKWARD", True) and any(t.requires_grad for t in outputs):
        getattr(case, "loss", weighted_sum)(result).backward()
    return Record(
        outputs=kept,
        kinds=[type(leaf).__name__ for leaf in tree_leaves(result) if not isinstance(leaf, torch.Tensor)],
        requires_grad=[t.requires_grad for t in outputs],
        arguments=[t.detach().clone() for t in given],
        gradients=[None if not t.is_leaf or t.grad is None else t.grad.clone() for t in given],
        parameter_gradients={n: None if p.grad is None else p.grad.clone() for n, p in module.named_parameters()},
        buffers={name: buffer.clone() for name, buffer in module.named_buffers()},
        generator=torch.get_rng_state(),
    )


def played(case: ModuleType, wrap: Wrap = eager) -> dict[str, Any]:
    """The case's scenario, from a seed."""
    torch.manual_seed(SEED)
    return case.scenario(wrap)


def differences(case: ModuleType, wrap: Wrap) -> list[str]:
    """Everything in which a compiled case differs from eager; empty where nothing does. What it raises is raised."""
    tolerance = getattr(case, "TOLERANCE", TOLERANCE)
    compiled = record(case, wrap)
    found = differing(dataclasses.asdict(record(case)), dataclasses.asdict(compiled), "", tolerance)
    if hasattr(case, "check"):
        case.check(compiled)
    if hasattr(case, "scenario"):
        result = played(case, wrap)
        found += differing(played(case), result, "scenario", tolerance)
        if not found and hasattr(case, "check_scenario"):
            case.check_scenario(result)
    return found


def differing(expected: Any, got: Any, where: str, tolerance: tuple[float, float]) -> list[str]:
    """Where two trees of tensors and values differ, None and zero told apart."""
    if isinstance(expected, dict):
        if expected.keys() != got.keys():
            return [f"{where}: has {sorted(got)}, should have {sorted(expected)}"]
        return [d for key in expected for d in differing(expected[key], got[key], f"{where}.{key}", tolerance)]
    if isinstance(expected, list):
        if len(expected) != len(got):
            return [f"{where}: {len(got)} values, should be {len(expected)}"]
        pairs = enumerate(zip(expected, got))
        return [d for i, (one, other) in pairs for d in differing(one, other, f"{where}[{i}]", tolerance)]
    if not isinstance(expected, torch.Tensor) or not isinstance(got, torch.Tensor):
        same = expected is got or (not isinstance(expected, torch.Tensor) and expected == got)
        return [] if same else [f"{where}: {got}, should be {expected}"]
    try:
        torch.testing.assert_close(got, expected, rtol=tolerance[0], atol=tolerance[1], equal_nan=True)
    except AssertionError as error:
        return [f"{where}: {' '.join(str(error).split())}"]
    return []


def tensors(tree: Any) -> list[torch.Tensor]:
    """The tensors among the leaves of nested containers."""
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


def weighted_sum(result: Any) -> torch.Tensor:
    """A loss that no two elements enter alike."""
    total = torch.zeros((), dtype=torch.float64)
    for t in tensors(result):
        if t.requires_grad:
            value = (t.abs().square() if t.is_complex() else t).double()
            weights = torch.linspace(0.5, 1.5, max(value.numel(), 1), dtype=torch.float64)[: value.numel()]
            total = total + (value * weights.reshape(value.shape)).sum()
    return total
