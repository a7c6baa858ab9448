"""Hooks take part in a compiled call, whenever they come and go."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import bridge
from bridge.runtime import hooks
from bridge.runtime.hooks import MOST_SETS

X = torch.linspace(-1, 1, 8).reshape(2, 4)


def model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 3))


def double(module: nn.Module, args: Any, result: torch.Tensor) -> torch.Tensor:
    return result * 2


def test_hooks_registered_and_removed_after_compiling() -> None:
    plain = model()
    compiled = bridge.compile(plain, "eager")
    without = compiled(X)
    handle = plain[0].register_forward_hook(double)
    with_hook = compiled(X)
    assert torch.equal(with_hook, plain(X))
    assert not torch.equal(with_hook, without)
    handle.remove()
    assert torch.equal(compiled(X), without)
    graphs = len(bridge.inspect(compiled).graphs)
    plain[0].register_forward_hook(double)
    assert torch.equal(compiled(X), with_hook)
    assert len(bridge.inspect(compiled).graphs) == graphs, "the same hook is compiled once"


def test_hooks_on_the_compiled_module_itself() -> None:
    compiled = bridge.compile(model(), "eager")
    seen: list[Any] = []
    compiled.register_forward_pre_hook(lambda module, args: seen.append(len(args)))
    compiled.register_forward_hook(double)
    assert torch.equal(compiled(X), 2 * model()(X))
    assert seen == [1]


def test_hooks_cleared_behind_torchs_back() -> None:
    plain = model()
    compiled = bridge.compile(plain, "eager")
    plain[2].register_forward_hook(double)
    compiled(X)
    plain[2]._forward_hooks.clear()
    assert torch.equal(compiled(X), plain(X))


def test_a_full_backward_hook_fires() -> None:
    plain, reference = model(), model()
    got: list[torch.Tensor] = []
    expected: list[torch.Tensor] = []
    for one, seen in ((plain, got), (reference, expected)):
        one[0].register_full_backward_hook(lambda module, into, out, seen=seen: seen.append(out[0].clone()))
    compiled = bridge.compile(plain, "eager")
    for one in (compiled, reference):
        one(X.clone().requires_grad_()).sum().backward()
    torch.testing.assert_close(got[0], expected[0])
    assert len(got) == len(expected) == 1
    assert len(bridge.inspect(compiled).graphs) > 2, "the layer with the hook is a graph of its own"


def test_hooks_of_a_module_that_a_function_calls() -> None:
    plain = model()
    compiled = bridge.compile(lambda x: plain(x), "eager")
    compiled(X)
    plain[0].register_forward_hook(double)
    assert torch.equal(compiled(X), plain(X))


def test_ever_new_hooks_do_not_pile_up() -> None:
    plain = model()
    compiled = bridge.compile(plain, "eager")
    for scale in range(MOST_SETS + 3):
        handle = plain[0].register_forward_hook(lambda module, args, result, scale=scale: result * scale)
        assert torch.equal(compiled(X), plain(X))
        handle.remove()
    assert torch.equal(compiled(X), model()(X))


def test_a_compiled_module_does_not_look_for_hooks_at_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two results only one is used, so each call registers a hook that takes zeros back."""
    looked: list[nn.Module] = []
    monkeypatch.setattr(hooks, "hooks_of", lambda module, found=hooks.hooks_of: looked.append(module) or found(module))
    plain, other = nn.Linear(4, 3), nn.Linear(4, 3)
    both = nn.ModuleList([plain, other])
    both.forward = lambda x: (plain(x), other(x))  # type: ignore[method-assign]
    compiled = bridge.compile(both, "eager")
    compiled(X)[0].sum().backward()  # compiling registers some, too
    compiled(X)
    looked.clear()
    for _ in range(3):
        compiled(X)[0].sum().backward()
    assert other.weight.grad is None
    assert not looked
    plain.register_forward_hook(double)
    assert torch.equal(compiled(X)[0], plain(X))
    assert len(looked) == 1
