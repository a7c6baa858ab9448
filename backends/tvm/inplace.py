"""Which results a kernel writes into the memory of an input that they replace, as an optimizer's update does.

That can be where nobody reads the old value afterwards: no later step, and in the kernel itself no element other than
the one that is being written, nor one that the loops come back to.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

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
            if target is not None and all(n <= number for n in readers[target]) and is_local(item, value, target):
                item.into[value] = target


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
    index = kernel.index_of(value)
    return all(load.index == index for body in kernel.bodies.values() for load in _loads(body, target))


def _loads(body: Scalar, value: Value) -> list[Load]:
    return [node for node in walk(body) if isinstance(node, Load) and node.value is value]
