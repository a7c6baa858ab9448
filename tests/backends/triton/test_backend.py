"""Which nodes Triton takes, what the ledger says of it, and what is kept of a choice."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from torch import fx
from torch.fx.experimental.proxy_tensor import make_fx

import bridge
from bridge.backends.triton import backend, measure
from bridge.backends.triton.backend import Triton, refused
from bridge.backends.triton.measure import Choice, choice, examples
from bridge.backends.triton.table import launches, table
from bridge.ir.nodes import computes
from bridge.ledger import DeadEnd

aten = torch.ops.aten
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def only_node(function: Callable[..., object], *inputs: torch.Tensor, symbolic: bool = False) -> fx.Node:
    module = make_fx(function, tracing_mode="symbolic" if symbolic else "fake")(*(x.to(DEVICE) for x in inputs))
    (node,) = (node for node in module.graph.nodes if computes(node))
    return node


@pytest.fixture
def cumsum() -> fx.Node:
    return only_node(lambda x: x.cumsum(1), torch.ones(3, 4))


@pytest.fixture
def deterministic() -> Iterator[None]:
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


def test_a_node_that_is_taken_gives_what_aten_gives(cumsum: fx.Node) -> None:
    taker = Triton(measures=False)
    assert taker.accepts(cumsum) is None
    call, dispatched = taker.build(cumsum)
    x = torch.randn(3, 4, device=DEVICE)
    torch.testing.assert_close(call(x), x.cumsum(1))
    torch.testing.assert_close(call(aten._efficientzerotensor((3, 4), device=DEVICE)), torch.zeros_like(x))
    negated = torch.complex(x, x).conj().imag
    assert negated.is_neg()
    torch.testing.assert_close(call(negated), -x.cumsum(1))
    assert "aten.cumsum.default" not in dispatched


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (lambda x: x.exp(), "no Triton kernel for aten.exp.default"),
        (lambda x: x.double().sort(stable=True)[0], "more than 64 bits"),
        (lambda x: aten.sort(x.expand(4, 5000)), "rows of 5000 elements"),
        (lambda x: aten.scatter_reduce(x, 0, x.long(), x, "amax"), "reduce='amax'"),
        (lambda x: aten.embedding_dense_backward(x, x[:, 0].long(), 4, -1, True), "scale_grad_by_freq=True"),
        (lambda x: aten.topk(x.expand(4, 5000), 300), "k=300"),
    ],
)
def test_what_it_does_not_take_has_a_reason(function: Callable[..., torch.Tensor], reason: str) -> None:
    module = make_fx(function, tracing_mode="fake")(torch.ones(4, 1, device=DEVICE))
    *_, node = (node for node in module.graph.nodes if computes(node))
    refusal = refused(node)
    assert refusal is not None
    assert refusal.dead_end is DeadEnd.COVERAGE
    assert reason in refusal.detail


def test_what_adds_up_in_any_order_is_refused_where_one_order_is_asked_for(deterministic: None) -> None:
    node = only_node(lambda x, i: x.scatter_add(0, i, x), torch.ones(3), torch.tensor([0, 0, 1]))
    refusal = refused(node)
    assert refusal is not None
    assert "deterministic algorithms" in refusal.detail
    assert refused(only_node(lambda x: x.cumsum(0), torch.ones(3))) is None


def test_without_a_gpu_nothing_is_taken_and_no_kernel_is_imported() -> None:
    program = (
        "import sys, torch, bridge.pipeline; from torch.fx.experimental.proxy_tensor import make_fx;"
        "from bridge.backends.triton.backend import Triton;"
        "*_, node, _ = make_fx(lambda x: x.cumsum(0))(torch.ones(3)).graph.nodes;"
        "print(Triton().accepts(node).detail, 'bridge.backends.triton.kernels' in sys.modules)"
    )
    environment = {**os.environ, "TRITON_INTERPRET": "0", "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)
    assert done.stdout == "Triton's kernels run on CUDA, not on cpu False\n", done.stderr


@pytest.fixture
def unmeasured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Triton takes what it can, however quick ATen is."""
    monkeypatch.setattr(measure, "on_gpu", lambda values: False)
    monkeypatch.setattr(measure, "_key", lambda node: "")


def test_what_goes_to_triton_is_an_event_that_says_so(unmeasured: None) -> None:
    x = torch.randn(3, 4, device=DEVICE)
    denied = {"denied": ("aten.cumsum.default",)}
    compiled = bridge.compile(lambda x: x.exp().cumsum(1), fallback=["triton", "eager"], options=denied)
    torch.testing.assert_close(compiled(x), x.exp().cumsum(1))
    (event,) = compiled.ledger.select(op="aten.cumsum.default")
    assert (event.backend, event.dead_end, event.kind) == ("triton", DeadEnd.COVERAGE, "denied")
    audit = bridge.audit(compiled, x)
    assert audit.ok, str(audit)
    assert "aten.cumsum.default" not in audit.fallback


def test_the_target_triton_asks_triton_first_and_tvm_for_the_rest(unmeasured: None) -> None:
    x = torch.randn(3, 4, device=DEVICE)
    compiled = bridge.compile(lambda x: x.exp().cumsum(1), target="triton")
    torch.testing.assert_close(compiled(x), x.exp().cumsum(1))
    assert not compiled.ledger.select(dead_end="coverage")
    assert compiled.placement["inference"] == {"generated": 1, "library": 1, "fallback": 0, "uncaptured": 0}


def slower(monkeypatch: pytest.MonkeyPatch, times: list[float]) -> list[int]:
    """Let each measuring take the next of these times, and count them."""
    asked: list[int] = []

    def measured(*_: object) -> float:
        asked.append(1)
        return times[len(asked) - 1]

    monkeypatch.setattr(measure, "seconds", measured)
    monkeypatch.setattr(measure, "on_gpu", lambda values: True)
    return asked


def test_the_quickest_configuration_is_taken_and_kept_for_the_next_process(
    cumsum: fx.Node, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("BRIDGE_CACHE_DIR", str(tmp_path))
    asked = slower(monkeypatch, [4.0, 1.0, 3.0, 5.0, 2.0])
    for _ in range(2):
        taker = Triton()
        assert taker.accepts(cumsum) is None
        assert taker._choice(cumsum).config == 1
    assert len(asked) == len(table()[aten.cumsum.default].configs) + 1


def test_where_aten_is_quicker_it_runs_and_the_event_says_by_how_much(monkeypatch: pytest.MonkeyPatch) -> None:
    slower(monkeypatch, [2.8, 3.0, 3.1, 3.2, 2.0])
    denied = {"denied": ("aten.cumprod.default",)}
    compiled = bridge.compile(lambda x: x.cumprod(0), fallback=["triton", "eager"], options=denied)
    compiled(torch.ones(7, device=DEVICE))
    (event,) = compiled.ledger.select(op="aten.cumprod.default")
    assert event.backend == "eager"
    assert event.detail.endswith("ATen is 1.4 times as fast as Triton at these shapes")


def test_a_kernel_that_fails_is_a_refusal_that_is_not_kept(cumsum: fx.Node, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: object) -> float:
        raise RuntimeError("no such instruction")

    monkeypatch.setattr(measure, "seconds", failing)
    monkeypatch.setattr(measure, "on_gpu", lambda values: True)
    monkeypatch.setattr(measure, "_key", lambda node: "a key of its own")
    refusal = Triton().accepts(cumsum)
    assert refusal is not None
    assert (refusal.kind, refusal.detail) == ("build failed", "Triton failed: RuntimeError: no such instruction")
    assert not measure.users_cache().fetch("a key of its own", Path())


def test_examples_are_valid_indices_and_leave_torchs_generator_alone() -> None:
    node = only_node(lambda x, i: x.scatter_add(1, i, x), torch.ones(30, 2), torch.zeros(30, 2, dtype=torch.int64))
    before = torch.random.get_rng_state()
    _, index = examples(node, table()[aten.scatter_add.default])
    assert index.unique().tolist() == [0, 1]
    assert torch.equal(before, torch.random.get_rng_state())


def test_a_symbolic_size_is_tried_as_it_was_at_capture() -> None:
    node = only_node(lambda x: x.cumsum(0), torch.ones(5, 6), symbolic=True)
    row = table()[aten.cumsum.default]
    assert refused(node) is None
    assert examples(node, row)[0].shape == (5, 6)
    call, _ = Triton(measures=False).build(node)
    x = torch.randn(9, 4, device=DEVICE)
    torch.testing.assert_close(call(x), x.cumsum(0))


def test_nothing_is_tried_at_sizes_that_depend_on_values() -> None:
    module = make_fx(lambda x: x.nonzero().cumsum(0), tracing_mode="symbolic")(torch.ones(5, 6, device=DEVICE))
    node = next(node for node in module.graph.nodes if node.target is aten.cumsum.default)
    refusal = Triton().accepts(node)
    assert refusal is not None
    assert "depend on values" in refusal.detail
    assert Triton(measures=False).accepts(node) is None


def test_a_choice_is_what_it_was_when_it_comes_back() -> None:
    kept = Choice(2, 0.5, 0.25, {"aten.clone.default": 1})
    assert Choice(**json.loads(json.dumps(vars(kept)))) == kept


def test_an_overload_has_one_row_with_parameters_of_its_schema() -> None:
    with pytest.raises(ValueError, match=r"already launched by kernels.scan.cumsum"):
        launches(aten.cumsum.default)(lambda x: x)
    with pytest.raises(TypeError, match="names y, which aten.sin.default does not have"):
        launches(aten.sin.default)(lambda y: y)
    assert aten.sin.default not in table()


def test_one_choice_serves_equal_nodes(unmeasured: None, monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    monkeypatch.setattr(backend, "choice", lambda *given: made.append(given) or choice(*given))
    taker = Triton()
    node = only_node(lambda x: x.cumsum(0), torch.ones(5, 6))
    assert taker.accepts(node) is None
    taker.build(node)
    assert len(made) == 1
