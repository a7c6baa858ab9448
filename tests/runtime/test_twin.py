"""A compiled module is the user's module in every way but how it runs."""

from __future__ import annotations

import copy
import io
import pickle
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, parametrize, prune

import bridge
from bridge.errors import NotCompilable
from bridge.runtime.twin import CompiledFunction, Twin


class Net(nn.Module):
    """Has attributes of the names that a compiled module offers, and a few of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.norm = nn.BatchNorm1d(4)
        self.ledger = "mine"

    @property
    def width(self) -> int:
        return self.linear.out_features

    def doubled(self) -> int:
        return 2 * self.width

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(self.linear(x)).relu()


X = torch.linspace(-1, 1, 32).reshape(8, 4)


def compiled(model: nn.Module) -> Any:
    return bridge.compile(model, "eager")


def runs(twin: Any) -> int:
    return sum(graph.runs[0] for graph in bridge.inspect(twin).graphs)


def test_it_is_an_instance_with_the_modules_state() -> None:
    model = Net()
    twin = compiled(model)
    assert isinstance(twin, Net)
    assert issubclass(type(twin), Twin)
    assert type(twin).__name__ == "Net"
    assert repr(twin) == repr(model)
    assert list(twin.state_dict()) == list(model.state_dict())
    assert all(one is other for one, other in zip(twin.parameters(), model.parameters()))
    twin(X).sum().backward()
    assert runs(twin) == 2
    assert model.linear.weight.grad is twin.linear.weight.grad is not None


def test_attributes_methods_and_properties_are_the_modules() -> None:
    model = Net()
    twin = compiled(model)
    assert (twin.width, twin.doubled()) == (4, 8)
    twin.extra = 5
    assert model.extra == 5
    del twin.extra
    assert not hasattr(model, "extra")
    model.linear = nn.Linear(4, 4)
    assert twin.linear is model.linear
    assert torch.equal(twin(X), model(X))
    with pytest.raises(AttributeError, match="missing"):
        _ = twin.missing


def test_the_users_attributes_win_and_inspect_always_answers() -> None:
    twin = compiled(Net())
    twin(X)
    assert twin.ledger == "mine"
    assert twin.placement == bridge.inspect(twin).placement
    assert isinstance(bridge.inspect(twin).ledger, bridge.Ledger)
    assert compiled(nn.ReLU()).ledger.events == ()


def test_modes_and_dtypes() -> None:
    model = Net()
    twin = compiled(model)
    twin.eval()
    assert not model.training
    assert torch.equal(twin(X), model(X))
    twin.double()
    assert model.linear.weight.dtype == torch.float64
    assert torch.equal(twin(X.double()), model(X.double()))


def test_copies_are_compiled_and_independent() -> None:
    twin = compiled(Net())
    twin(X)
    for other in (copy.deepcopy(twin), pickle.loads(pickle.dumps(twin)), copy.deepcopy({"a": [twin]})["a"][0]):
        assert issubclass(type(other), Twin)
        assert other.linear.weight is not twin.linear.weight
        assert torch.equal(other.eval()(X), twin.eval()(X))
        assert runs(other) == 1
        assert bridge.inspect(other).options == bridge.inspect(twin).options


def test_a_shallow_copy_shares_parameters() -> None:
    twin = compiled(Net())
    other = copy.copy(twin)
    assert other.linear.weight is twin.linear.weight
    assert torch.equal(other.eval()(X), twin(X))


def test_checkpoints() -> None:
    twin = compiled(Net())
    whole, state = io.BytesIO(), io.BytesIO()
    torch.save(twin, whole)
    torch.save(twin.state_dict(), state)
    whole.seek(0)
    state.seek(0)
    loaded = torch.load(whole, weights_only=False)
    assert issubclass(type(loaded), Twin)
    plain = Net()
    plain.load_state_dict(torch.load(state))
    assert torch.equal(plain.eval()(X), loaded.eval()(X))


def test_it_is_a_part_of_another_module() -> None:
    inner = compiled(Net())
    outer = nn.Sequential(inner, nn.Linear(4, 2))
    assert next(iter(outer.state_dict())) == "0.linear.weight"
    outer(X).sum().backward()
    assert runs(inner) == 2
    assert inner.linear.weight.grad is not None


def test_it_is_compiled_together_with_another_module() -> None:
    inner = compiled(Net())
    outer = compiled(nn.Sequential(inner, nn.Linear(4, 2)))
    expected = nn.Sequential(copy.deepcopy(bridge.runtime.twin.state_of(inner).subject), *list(outer)[1:])(X)
    assert torch.equal(outer(X), expected)


def test_compiling_again_starts_from_the_module() -> None:
    model = Net()
    twin = compiled(compiled(model))
    assert bridge.runtime.twin.state_of(twin).subject is model


def test_functional_call() -> None:
    twin = compiled(nn.Linear(4, 4))
    state = {name: value + 1 for name, value in twin.named_parameters()}
    got = torch.func.functional_call(twin, state, (X,))
    assert torch.equal(got, torch.nn.functional.linear(X, state["weight"], state["bias"]))


@pytest.mark.parametrize("swap", [parametrizations.weight_norm, parametrizations.spectral_norm])
def test_utilities_that_swap_the_class(swap: Any) -> None:
    """They find the user's class on the compiled module and change the class of the module that is captured."""
    model, reference = nn.Linear(4, 4), nn.Linear(4, 4)
    reference.load_state_dict(model.state_dict())
    twin = compiled(model).eval()
    twin(X)
    torch.manual_seed(0)
    swap(twin)
    torch.manual_seed(0)
    swap(reference.eval())
    assert parametrize.is_parametrized(twin, "weight")
    assert list(twin.state_dict()) == list(reference.state_dict())
    got = twin(X)
    torch.testing.assert_close(got, reference(X))
    got.sum().backward()
    torch.testing.assert_close(twin.weight, reference.weight)
    assert runs(twin) >= 2
    parametrize.remove_parametrizations(twin, "weight")
    torch.testing.assert_close(twin(X), got)


def test_pruning() -> None:
    model = nn.Linear(4, 4)
    twin = compiled(model)
    twin(X)
    prune.l1_unstructured(twin, "weight", amount=8)
    assert torch.equal(twin(X), model(X))
    assert (twin.weight == 0).sum() == 8


def test_a_class_that_counts_its_subclasses_is_not_told() -> None:
    class Registered(nn.Module):
        known: list[type] = []  # noqa: RUF012

        def __init_subclass__(cls) -> None:
            Registered.known.append(cls)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + 1

    assert torch.equal(compiled(Registered())(X), X + 1)
    assert Registered.known == []


class Kind(type):
    """A metaclass."""


class Unusual(nn.Module, metaclass=Kind):
    """Slots, a metaclass, and ways of its own to be called and to be asked for attributes."""

    __slots__ = ("scale",)

    def __init__(self, scale: int = 3) -> None:
        super().__init__()
        self.scale = scale
        self.linear = nn.Linear(4, 4)

    def __getattr__(self, name: str) -> Any:
        return 42 if name == "answer" else super().__getattr__(name)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return super().__call__(x) + 1

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x) * self.scale + self.answer


def test_unusual_classes() -> None:
    model = Unusual()
    twin = compiled(model)
    assert torch.equal(twin(X), model(X))
    assert runs(twin) == 1
    assert (twin.scale, twin.answer) == (3, 42)


def test_the_type_of_a_compiled_module_makes_modules() -> None:
    other = type(compiled(Unusual()))(5)
    assert type(other) is Unusual
    assert other.scale == 5


def test_lazy_modules() -> None:
    twin = compiled(nn.Sequential(nn.LazyLinear(3), nn.ReLU()))
    assert torch.equal(twin(X), twin(X))
    assert twin[0].in_features == 4
    assert runs(twin) >= 1


def test_functions_keep_their_name_and_attributes() -> None:
    def program(x: torch.Tensor, scale: float = 2.0) -> torch.Tensor:
        """Scale."""
        return x * scale

    program.explain = "mine"  # type: ignore[attr-defined]
    made = compiled(program)  # type: ignore[arg-type]
    assert (made.__name__, made.__doc__, made.__wrapped__) == ("program", "Scale.", program)
    assert torch.equal(made(X, scale=3.0), X * 3)
    assert made.explain == "mine"
    assert made.placement["inference"]["fallback"] == 1
    with pytest.raises(AttributeError, match="missing"):
        _ = made.missing


def test_a_compiled_method() -> None:
    class Model:
        scale = 3

        @bridge.compile(target="eager")
        def run(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.scale

    assert torch.equal(Model().run(X), X * 3)
    assert isinstance(Model.run, CompiledFunction)


def test_copies_of_functions() -> None:
    made = bridge.compile(torch.sin, "eager")
    for other in (copy.deepcopy(made), pickle.loads(pickle.dumps(made))):
        assert isinstance(other, CompiledFunction)
        assert torch.equal(other(X), X.sin())


def test_inspect_wants_something_compiled() -> None:
    with pytest.raises(NotCompilable, match="Linear is not compiled"):
        bridge.inspect(nn.Linear(2, 2))
