"""Static programs for the sizes that a program with symbolic sizes meets often."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from bridge.ir.compiled import CompiledGraph
from bridge.ir.joint import Boxed
from bridge.ir.sizes import solved

HOT = 16
"""Runs with the same sizes after which these get a program of their own."""

MOST = 4
"""Programs of their own that one graph may have."""


def with_hot_sizes(compiled: CompiledGraph, compile_at: Callable[[Mapping[str, int]], Boxed]) -> CompiledGraph:
    """The compiled graph, which runs a static program where the sizes are those of many runs before.

    Dynamo's guard stays the one of the symbolic graph, so nothing is captured again. compile_at: makes the program for
    given sizes by the names of their symbols.
    """
    placeholders = [node for node in compiled.graph.nodes if node.op == "placeholder"]
    values = [(f"args[{position}]", node.meta["val"]) for position, node in enumerate(placeholders)]
    texts = list(solved(values, ()))
    if not texts:
        return compiled
    hot = _Hot(compiled.run, [name for name, _ in texts], _reader(texts), compile_at)
    return replace(compiled, run=lambda args: hot.run(args))


def _reader(texts: Sequence[tuple[str, str]]) -> Callable[[list[Any]], tuple[int, ...]]:
    """A function from the inputs of a program to its sizes."""
    lines = [f"    {name} = {text}\n" for name, text in texts]
    scope: dict[str, Any] = {}
    exec(f"def sizes(args):\n{''.join(lines)}    return ({', '.join(name for name, _ in texts)},)\n", scope)
    return scope["sizes"]


class _Hot:
    def __init__(
        self,
        symbolic: Boxed,
        names: Sequence[str],
        sizes_of: Callable[[list[Any]], tuple[int, ...]],
        compile_at: Callable[[Mapping[str, int]], Boxed],
    ) -> None:
        self._symbolic = symbolic
        self._names = names
        self._sizes_of = sizes_of
        self._compile_at = compile_at
        self._seen: Counter[tuple[int, ...]] = Counter()
        self._static: dict[tuple[int, ...], Boxed] = {}

    def run(self, args: list[Any]) -> Sequence[Any]:
        sizes = self._sizes_of(args)
        return (self._static.get(sizes) or self._chosen(sizes))(args)

    def _chosen(self, sizes: tuple[int, ...]) -> Boxed:
        self._seen[sizes] += 1
        if self._seen[sizes] <= HOT or len(self._static) == MOST:
            return self._symbolic
        self._static[sizes] = self._compile_at(dict(zip(self._names, sizes, strict=True)))
        return self._static[sizes]
