"""Images that lie by channels are trained on as before, and lie as they did wherever somebody sees them."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import fx, nn

import bridge
from bridge.ir.convolutions import CONVOLUTIONS
from bridge.ir.schema import call_arguments
from bridge.passes import image_layouts
from tests.backends.tvm.emulated import emulated


class Net(nn.Module):
    """Two convolutions with what stands around them, a residual, and an image among the results."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 16, 3, padding=1, bias=False)
        self.norms = nn.ModuleList(nn.BatchNorm2d(16) for _ in range(2))
        self.block = nn.Conv2d(16, 16, 3, padding=1)
        self.pool = nn.MaxPool2d(2)
        self.head = nn.Linear(16 * 16, 4)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = self.pool(self.norms[0](self.stem(x)).relu())
        z = (self.norms[1](self.block(y)) + y).relu()
        return z, self.head(nn.functional.avg_pool2d(z, 2, ceil_mode=True).flatten(1)) + z.mean((2, 3))[:, :4]


@pytest.fixture
def wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The layout as for a GPU."""
    monkeypatch.setattr(image_layouts, "_on_a_gpu", lambda node: True)
    monkeypatch.setattr(image_layouts, "_is_wide", lambda node: True)


def trained(module: Any, net: nn.Module, x: torch.Tensor) -> list[torch.Tensor]:
    image, scores = module(x)
    (image.square().mean() + scores.square().mean()).backward()
    return [image, scores, *(p.grad for p in net.parameters() if p.grad is not None), *net.buffers()]


@pytest.mark.parametrize("format", [torch.contiguous_format, torch.channels_last], ids=str)
@pytest.mark.parametrize("autocast", [False, True])
def test_training(wanted: None, autocast: bool, format: torch.memory_format) -> None:
    net = Net().to(memory_format=format)
    eager, x = copy.deepcopy(net), torch.randn(4, 3, 16, 16).to(memory_format=format)
    with emulated(), torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        compiled = bridge.compile(net, options={"cache": False})
        mine = trained(compiled, net, x)
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        theirs = trained(eager, eager, x)
    for one, other in zip(mine, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=3e-2 if autocast else 1e-4, atol=3e-2 if autocast else 1e-5)
    assert mine[0].stride() == theirs[0].stride()
    forward = bridge.inspect(compiled).graphs[0].graph
    read = [
        node.all_input_nodes[0].meta["val"]
        for node in forward.nodes
        if node.target is torch.ops.aten.convolution.default
    ]
    assert len(read) == 2
    assert all(value.is_contiguous(memory_format=torch.channels_last) for value in read)


def test_inference(wanted: None) -> None:
    net, x = Net().eval(), torch.randn(2, 3, 16, 16)
    with emulated(), torch.no_grad():
        compiled = bridge.compile(net, options={"cache": False})
        for one, other in zip(compiled(x), net(x), strict=True):
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
            assert one.stride() == other.stride()


def test_a_step(wanted: None) -> None:
    net, x = Net(), torch.randn(4, 3, 16, 16)
    eager = copy.deepcopy(net)
    mine, theirs = (torch.optim.SGD(m.parameters(), lr=0.1) for m in (net, eager))
    step = bridge.compile_step(net, mine, lambda result: result[1].square().mean(), options={"cache": False})
    for _ in range(2):
        found = step(x)
        theirs.zero_grad()
        loss = eager(x)[1].square().mean()
        loss.backward()
        theirs.step()
        torch.testing.assert_close(found, loss.detach(), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(list(net.parameters()), list(eager.parameters()), rtol=1e-3, atol=1e-4)
    (graph,) = bridge.inspect(step).graphs
    assert "channels_last" in str(graph.graph.module.code)


@pytest.fixture
def gained(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if every convolution on a CPU gained."""
    monkeypatch.setattr(image_layouts, "_is_quicker", lambda node: True)


@pytest.mark.parametrize(
    ("layers", "expected"),
    [
        ([nn.Conv2d(3, 8, 3), nn.Conv2d(8, 32, 1), nn.Conv2d(32, 8, 1)], [True]),
        ([nn.Conv2d(3, 32, 1), nn.Conv2d(32, 32, 3, groups=32), nn.Conv2d(32, 8, 3)], [True, True]),
        ([nn.Conv2d(3, 32, 3), nn.Conv2d(32, 32, 3), nn.Conv2d(32, 8, 1)], [False, False, False]),
    ],
)
def test_most_convolutions_decide(layers: list[nn.Module], expected: list[bool]) -> None:
    net, x = nn.Sequential(*layers).requires_grad_(False), torch.randn(2, 3, 16, 16)
    compiled = bridge.compile(net, options={"cache": False})
    torch.testing.assert_close(compiled(x), net(x), rtol=1e-4, atol=1e-5)
    assert [by_channels(node) for node in convolutions(compiled)] == expected


def convolutions(compiled: Any) -> list[fx.Node]:
    graphs = [graph.graph for graph in bridge.inspect(compiled).graphs]
    return [node for graph in graphs for node in graph.nodes if node.target in CONVOLUTIONS]


def by_channels(node: fx.Node) -> bool:
    """Whether all images that a convolution reads lie by channels."""
    given = call_arguments(node)
    images = [given[name].meta["val"] for name in ("input", "grad_output") if name in given]
    return all(image.is_contiguous(memory_format=torch.channels_last) for image in images)


@pytest.mark.parametrize("format", [torch.contiguous_format, torch.channels_last], ids=str)
def test_training_on_a_cpu(gained: None, format: torch.memory_format) -> None:
    """A weight and its gradient stay as they are; images lie by channels, and what leaves the graph as it did."""
    net, x = Net().to(memory_format=format), torch.randn(4, 3, 16, 16).to(memory_format=format)
    eager = copy.deepcopy(net)
    compiled = bridge.compile(net, options={"cache": False})
    for one, other in zip(trained(compiled, net, x), trained(eager, eager, x), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
        assert one.stride() == other.stride()
    found = convolutions(compiled)
    assert len(found) == 4
    assert all(map(by_channels, found))


def test_a_fused_joint_lies_so_too(gained: None) -> None:
    net, x = Net(), torch.randn(4, 3, 16, 16)
    eager = copy.deepcopy(net)

    def loss(net: nn.Module, x: torch.Tensor) -> torch.Tensor:
        return net(x)[1].square().mean()

    compiled = bridge.compile(lambda x: loss(net, x), fuse_joint=True, options={"cache": False})
    mine, theirs = compiled(x), loss(eager, x)
    (3 * mine).backward()
    (3 * theirs).backward()
    torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-5)
    for one, other in zip(net.parameters(), eager.parameters(), strict=True):
        assert one.grad is not None
        assert other.grad is not None
        torch.testing.assert_close(one.grad, other.grad, rtol=1e-4, atol=1e-5)
        assert one.grad.stride() == other.grad.stride()
    found = convolutions(compiled)
    assert len(found) == 4
    assert all(map(by_channels, found))


class Heavy(nn.Module):
    """A convolution whose weight is larger than its images, between two whose images are larger."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.AvgPool2d(4),
            nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.Upsample(scale_factor=8), nn.Conv2d(64, 4, 3),
        )  # fmt: skip

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


def test_a_heavy_weight_stays_as_it_is(gained: None) -> None:
    net, x = Heavy(), torch.randn(2, 3, 16, 16)
    compiled = bridge.compile(net, options={"cache": False})
    torch.testing.assert_close(compiled(x), net(x), rtol=1e-4, atol=1e-5)
    assert [by_channels(node) for node in convolutions(compiled)[:3]] == [True, False, True]


@pytest.mark.parametrize(("taps", "expected"), [((2, 15), False), ((15, 2), True)])
def test_the_gradient_of_a_wide_weight_is_of_images_as_they_were(
    gained: None, taps: tuple[int, int], expected: bool
) -> None:
    net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, taps, padding=(0, 7)), nn.ReLU())
    eager, x = copy.deepcopy(net), torch.randn(2, 3, 20, 20)
    compiled = bridge.compile(net, options={"cache": False})
    for module in (compiled, eager):
        module(x).square().mean().backward()
    for one, other in zip(net.parameters(), eager.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad, rtol=1e-4, atol=1e-5)
    assert [by_channels(node) for node in convolutions(compiled)] == [True, True, expected, True]


class Seen(nn.Module):
    """Views of an image: some are told by places, one by strides, and one is there only of what lies plainly."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.norm = nn.Conv2d(3, 8, 3, padding=1), nn.LayerNorm(8)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = self.stem(x)
        first, second = y.split(4, 1)
        strided = torch.as_strided(y, (2, 3), (8, 1))
        return self.norm(y.permute(0, 2, 3, 1)), first * second[..., :1], strided * 2, y.flatten(1).sin(), y[:, :, 1:]


def test_views(gained: None) -> None:
    net, x = Seen(), torch.randn(2, 3, 8, 8)
    compiled = bridge.compile(net, options={"cache": False})
    for one, other in zip(compiled(x), net(x), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
        assert one.stride() == other.stride()
    assert all(map(by_channels, convolutions(compiled)))


@pytest.mark.parametrize("draw", [nn.Dropout(0.5), nn.Dropout2d(0.5), torch.randn_like, torch.bernoulli])
def test_what_is_drawn_stays_the_same(gained: None, draw: Any) -> None:
    """A generator fills memory in its order, so what it fills lies as in eager."""
    stem, x = nn.Conv2d(3, 8, 3, padding=1), torch.randn(2, 3, 8, 8)

    def drawn(x: torch.Tensor) -> torch.Tensor:
        return draw(stem(x).sigmoid())

    compiled = bridge.compile(drawn, options={"cache": False})
    results = []
    for each in (drawn, compiled):
        torch.manual_seed(0)
        results.append(each(x))
    torch.testing.assert_close(results[1], results[0], rtol=1e-4, atol=1e-5)
    assert all(map(by_channels, convolutions(compiled)))


@pytest.mark.parametrize("sizes", [(2, 1, 8, 8), (1, 1, 1, 1), (2, 8, 1, 1), (0, 8, 4, 4), (1, 8, 5, 1)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_sizes_of_one(gained: None, sizes: tuple[int, ...], dtype: torch.dtype) -> None:
    net = nn.Sequential(nn.Conv2d(sizes[1], 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 1, 1), nn.Conv2d(1, 8, 1)).to(
        dtype
    )
    x = torch.randn(sizes, dtype=dtype, requires_grad=True)
    compiled = bridge.compile(net, options={"cache": False})
    results = []
    for module in (net, compiled):
        out = module(x)
        found = torch.autograd.grad(out.square().sum(), [x, *net.parameters()])
        results.append([out, *found])
    rtol, atol = (3e-2, 3e-2) if dtype == torch.bfloat16 else (1e-4, 1e-5)
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, rtol=rtol, atol=atol)
        assert one.stride() == other.stride()


def written_by_strides(x: torch.Tensor) -> torch.Tensor:
    torch.as_strided(x, (5, 7), (7, 1), 3).zero_()
    return x * 1.5


def branched(x: torch.Tensor) -> torch.Tensor:
    return torch.cond(x.sum() > 0, lambda x: (x * 2).flatten(1), lambda x: (x * 3).flatten(1), (x,))


def strides_of(x: torch.Tensor) -> torch.Tensor:
    return torch.tensor(x.stride()) + x.flatten()[:4].long()


@pytest.fixture
def told() -> Any:
    """An op of somebody else, who tells how its argument lies."""
    with torch.library._scoped_library("images", "FRAGMENT") as library:
        library.define("told(Tensor x) -> Tensor")
        library.impl("told", strides_of, "CPU")
        library.impl("told", lambda x: x.new_empty(4, dtype=torch.int64), "Meta")
        yield torch.ops.images.told


@pytest.mark.parametrize("name", ["written_by_strides", "branched", "told"])
def test_what_goes_by_memory_is_given_what_lies_as_at_capture(gained: None, name: str, told: Any) -> None:
    reader = {"written_by_strides": written_by_strides, "branched": branched, "told": lambda x: told(x * 2)}[name]
    stem, x = nn.Conv2d(3, 8, 3).requires_grad_(False), torch.randn(2, 3, 16, 16)
    compiled = bridge.compile(lambda x: reader(stem(x) * 2), options={"cache": False})
    torch.testing.assert_close(compiled(x), reader(stem(x) * 2), rtol=1e-4, atol=1e-5)
    assert all(map(by_channels, convolutions(compiled)))
