"""`bridge.compile` takes what it should, refuses the rest in words, and never costs the user the result."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch._dynamo.exc import TensorifyScalarRestartAnalysis

import bridge
from bridge import api, generation
from bridge.backends.tvm.symbols import UnknownExpression
from bridge.errors import BadOption, NotCompilable, UnknownTarget
from bridge.ledger import DeadEnd
from bridge.options import Options
from bridge.runtime.interpreter import interpreted

X = torch.linspace(-1, 1, 8).reshape(2, 4)


def program(x: torch.Tensor) -> torch.Tensor:
    return (x.sin() * 2).sum()


@pytest.mark.parametrize("target", ["eager", "inductor"])
def test_targets_with_a_name(target: str) -> None:
    x = X.clone().requires_grad_()
    compiled = bridge.compile(program, target)
    compiled(x).backward()
    torch.testing.assert_close(x.grad, X.cos() * 2)
    assert compiled.ledger.events == ()
    assert bool(bridge.inspect(compiled).graphs) == (target == "eager")


@pytest.mark.parametrize("target", ["tvmm", "cuda11", {"kind": "nonsense"}, {}, 3, None])
def test_an_unknown_target_names_the_known_ones(target: Any) -> None:
    with pytest.raises(UnknownTarget, match="'tvm', 'triton', 'inductor', 'eager'"):
        bridge.compile(program, target)


@pytest.mark.parametrize("target", ["llvm", {"kind": "llvm", "mcpu": "core-avx2"}])
def test_tvm_targets(target: Any) -> None:
    assert bridge.inspect(bridge.compile(program, target)).options.target == target


def test_options_are_checked_and_kept() -> None:
    compiled = bridge.compile(
        program, dynamic=False, fallback=["eager"], library=False, partitioner="default", options={"timeout": 5.0}
    )
    expected = Options("tvm", False, ("eager",), False, "default", timeout=5.0)
    assert bridge.inspect(compiled).options == expected
    assert bridge.inspect(bridge.compile(program, options=expected)).options is expected
    for name, value in (("library", "no"), ("cache", 1), ("denied", "aten.gelu.default"), ("fallback", "eager")):
        with pytest.raises(BadOption, match=f"{name}={value!r}: "):
            bridge.compile(abs, options={name: value})
    with pytest.raises(BadOption, match="options='fast': give"):
        bridge.compile(abs, options="fast")  # type: ignore[arg-type]
    with pytest.raises(BadOption, match=r"fallback=\('xla',\)"):
        bridge.compile(abs, fallback="xla")
    with pytest.raises(BadOption, match="no option 'speed'; there are"):
        bridge.compile(program, options={"speed": 9})
    with pytest.raises(BadOption, match="partitioner='best'"):
        bridge.compile(program, partitioner="best")  # type: ignore[arg-type]


def test_the_split_is_the_options() -> None:
    def chain(x: torch.Tensor) -> torch.Tensor:
        return x.sin().cos().sin().cos().sum()

    saved = {}
    for split in ("min_cut", "default"):
        compiled = bridge.compile(chain, "eager", partitioner=split)  # type: ignore[arg-type]
        compiled(X.clone().requires_grad_()).backward()
        saved[split] = len(bridge.inspect(compiled).graphs[0].graph.outputs)
    assert saved["min_cut"] < saved["default"]


@pytest.mark.parametrize(
    ("subject", "words"),
    [
        (3, "int is neither a module nor a function"),
        (torch.ones(2), "Tensor is neither a module nor a function"),
        (nn.Linear, "Linear is a class; give an instance"),
        (nn.Linear(2, 2, device="meta"), "'weight' is on the device 'meta', which holds no data"),
    ],
)
def test_what_cannot_be_compiled(subject: Any, words: str) -> None:
    with pytest.raises(NotCompilable, match=words):
        bridge.compile(subject, "eager")


def test_results_that_are_no_tensors() -> None:
    def mixed(x: torch.Tensor, names: dict[str, int]) -> dict[str, Any]:
        return {"sum": x.sum(), "rows": x.shape[0], "names": names, "none": None, "text": "a"}

    got = bridge.compile(mixed, "eager")(X, {"a": 1})
    assert torch.equal(got.pop("sum"), X.sum())
    assert got == {"rows": 2, "names": {"a": 1}, "none": None, "text": "a"}


def test_a_decorator() -> None:
    @bridge.compile(target="eager")
    def scaled(x: torch.Tensor) -> torch.Tensor:
        return x * 3

    assert torch.equal(scaled(X), X * 3)
    assert bridge.inspect(scaled).graphs[0].runs == [1]


def test_what_the_users_code_raises_is_raised() -> None:
    def wrong(x: torch.Tensor) -> torch.Tensor:
        if x.shape[0] == 2:
            raise KeyError("mine")
        return x

    with pytest.raises(KeyError, match="mine"):
        bridge.compile(wrong, "eager")(X)


def test_a_fault_of_our_own_compiler_costs_an_event_and_not_the_result(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(graph: Any, compilation: Any) -> Any:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(api, "_compile_graph", broken)
    compiled = bridge.compile(program)
    x = X.clone().requires_grad_()
    compiled(x).backward()
    assert torch.equal(x.grad, X.cos() * 2)  # type: ignore[arg-type]
    events = compiled.ledger.select(kind="compiler failed")
    assert [event.phase for event in events] == ["forward", "backward"]
    assert events[0].dead_end is DeadEnd.MAINTENANCE
    assert events[0].detail == "ZeroDivisionError: a bug"
    assert [graph.runs[0] for graph in bridge.inspect(compiled).graphs] == [1, 1]


@pytest.mark.parametrize("target", ["cuda", {"kind": "cuda", "arch": "sm_90"}])
def test_a_target_elsewhere_is_told_and_costs_no_result(target: Any) -> None:
    compiled = bridge.compile(program, target)
    x = X.clone().requires_grad_()
    compiled(x).backward()
    assert torch.equal(x.grad, X.cos() * 2)  # type: ignore[arg-type]
    assert not compiled.ledger.select(dead_end="maintenance")
    events = compiled.ledger.select(kind="device")
    assert [event.phase for event in events] == ["forward", "backward"]
    assert events[0].detail.startswith(f"target={target!r} is for 'cuda', and the tensors are on 'cpu': move the model")


def test_dynamos_own_exceptions_pass_through(monkeypatch: pytest.MonkeyPatch) -> None:
    """Dynamo restarts its analysis by an exception, which a backend must not swallow."""
    restarts: list[int] = []

    def restarting(graph: Any, compilation: Any) -> Any:
        if not restarts:
            restarts.append(1)
            raise TensorifyScalarRestartAnalysis
        return interpreted(graph)

    monkeypatch.setattr(api, "_compile_graph", restarting)
    compiled = bridge.compile(program)
    assert torch.equal(compiled(X), program(X))
    assert restarts == [1]
    assert not compiled.ledger.select(kind="compiler failed")


def test_floats_that_change_from_call_to_call() -> None:
    compiled = bridge.compile(lambda x, scale: x * scale, "eager")
    for scale in (0.5, 0.25, 0.125, 3.0):
        assert torch.equal(compiled(X, scale), X * scale)


def test_importing_the_bridge_imports_neither_torch_nor_tvm() -> None:
    code = "import sys, bridge; print([m for m in ('torch', 'tvm', 'numpy', 'rich') if m in sys.modules])"
    root = Path(bridge.__file__).parent.parent
    answer = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "[]"


def test_what_our_own_compiler_cannot_do_costs_an_event(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*args: object) -> None:
        raise UnknownExpression("no words for this size")

    monkeypatch.setattr(generation, "lower", fails)
    compiled = bridge.compile(program)
    assert torch.equal(compiled(X), program(X))
    (event,) = compiled.ledger.select(kind="compiler failed")
    assert "no words for this size" in event.detail
