"""Which results a kernel writes into memory that there is: that of an input that they replace, as an optimizer's update
does, or that of a value of the program's own which nobody reads any more.

That can be where nobody reads the old value afterwards: no later step, and in the kernel itself no element other than
the one that is being written, nor one that the loops come back to.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from bridge.backends.tvm.kernel import Kernel
from bridge.backends.tvm.loops import Call, Loops, Opaque, Value
from bridge.backends.tvm.scalar import Load, Scalar, walk
from bridge.backends.tvm.schedule.nest import nest_of

Item = Kernel | Opaque | Call


def write_in_place(items: Sequence[Item], loops: Loops, base: Callable[[Value], Value]) -> None:
    """Let kernels write into inputs as far as `loops.into` asks for it and it is safe."""
    readers: dict[Value, list[int]] = {target: [] for target in loops.into.values()}
    for number, item in enumerate(items):
        for value in {base(v) for v in (item.reads() if isinstance(item, Kernel) else item.inputs)}:
            if value in readers:
                readers[value].append(number)
    for number, item in enumerate(items):
        if not isinstance(item, Kernel):
            continue
        for value in item.stored:
            target = loops.into.get(value)
            if target is None or any(n > number for n in readers[target]) or _is_shown(item, target, base):
                continue
            if is_local(item, value, target):
                item.into[value] = target


def write_over_dead(
    items: Sequence[Item], loops: Loops, base: Callable[[Value], Value], fresh: Collection[str]
) -> None:
    """Let a kernel write a result over one that it is the last to read, where it lies alike and that is safe.

    fresh: the call-outs whose results are memory of their own, which nobody else keeps.
    """
    last: dict[Value, int] = {}
    for number, item in enumerate(items):
        last.update((base(v), number) for v in (item.reads() if isinstance(item, Kernel) else item.inputs))
    kept = {base(v) for v in loops.outputs} | {*loops.into} | {*loops.into.values()}
    made: set[Value] = set()
    for number, item in enumerate(items):
        if isinstance(item, Kernel):
            dead = [v for v in item.reads() if v in made and last[v] == number and not _is_shown(item, v, base)]
            for value in (v for v in item.stored if v not in loops.into):
                target = next((t for t in dead if lies_alike(t, value) and is_local(item, value, t)), None)
                if target is not None:
                    item.into[value] = target
                    dead.remove(target)
            made.update(v for v in item.stored if v not in kept and base(v) is v)
        elif isinstance(item, Opaque) or item.name in fresh:
            made.update(v for v in item.outputs if v not in kept)


def lies_alike(value: Value, other: Value) -> bool:
    """Whether two values take the same memory, element by element in the same order where they have one."""
    if value.dtype != other.dtype or value.numel != other.numel or value.numel == 1:
        return False
    return (value.shape, value.strides) == (other.shape, other.strides) or (value.compact and other.compact)


def is_local(kernel: Kernel, value: Value, target: Value) -> bool:
    """Whether the kernel reads an element of the old value only to write that of the new one, or earlier.

    What is written in the last walk over a row's columns, or after it, is not read again.
    """
    whole = kernel.copied()
    whole.stored = [member.out for member in kernel.members]
    nest = nest_of(whole)
    store = next(s for s in nest.stores if s.value is value)
    top = max((r.level for r in nest.reductions), default=0)
    if store.over_columns and store.level < top:
        return False
    place = value.offset(kernel.index_of(value))
    return all(target.offset(load.index) == place for body in kernel.bodies.values() for load in _loads(body, target))


def _is_shown(kernel: Kernel, target: Value, base: Callable[[Value], Value]) -> bool:
    """Whether the kernel reads a view of the value by another name, and so elements that `is_local` does not see."""
    return any(value is not target and base(value) is target for value in kernel.reads())


def _loads(body: Scalar, value: Value) -> list[Load]:
    return [node for node in walk(body) if isinstance(node, Load) and node.value is value]
