"""Group computations into kernels.

First it is decided which values are worth a place in memory: those that something outside reads, reductions, and
what is used often and dear to compute again. Then each of these, in program order, joins the latest kernel that it
fits and gains from, or starts one. TVM's own fusion leaves a layer norm as five kernels; this one leaves it as one.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from bridge.backends.tvm.absorb import absorbed, as_it_lies
from bridge.backends.tvm.arrange import arrange
from bridge.backends.tvm.bundle import Bundle, bundled
from bridge.backends.tvm.costs import moves, operations
from bridge.backends.tvm.index import product
from bridge.backends.tvm.inplace import Item, is_local, write_in_place, write_over_dead
from bridge.backends.tvm.kernel import Kernel
from bridge.backends.tvm.loops import Call, Computation, Loops, Opaque, Step, Value
from bridge.backends.tvm.order import reordered
from bridge.backends.tvm.scalar import Load, Operation, Scalar, symbols_in, walk
from bridge.backends.tvm.schedule.vector import width
from bridge.backends.tvm.split import columns_for_cpu, for_cpu, for_gpu, split_reductions
from bridge.backends.tvm.spread import summed_at_once, summed_part_by_part
from bridge.backends.tvm.sums import running_sums

CHEAP = 3
"""A value that costs at most this many operations and one load is computed again rather than stored."""

CHEAP_ON_A_GPU, KERNELS = 48, 3
"""On a GPU: as many operations, and in how many kernels at most those who use a value are thought to end up."""

TOGETHER = 1 << 18
"""On a GPU: terms below which reductions of one shape are computed together, as starting a kernel takes longer."""

SMALLER = 8
"""How many times smaller a value has to be to count as read for nothing."""


@dataclass(frozen=True)
class Plan:
    """The program as kernels and calls, in order; `computed` are the values that no step needs to make."""

    items: Sequence[Item | Bundle]
    loops: Loops


FOR_CPU, FOR_GPU = (for_cpu, columns_for_cpu, summed_part_by_part), (for_gpu, for_gpu, summed_at_once)
"""How reductions are split, and those whose squares are summed with them."""


def fuse(
    loops: Loops,
    apart: frozenset[str] = frozenset(),
    for_a_gpu: bool = False,
    fresh: Collection[str] | None = None,
    released: Collection[str] = (),
) -> Plan:
    """Group the program's computations. Those of a node in `apart` get a kernel each, after one did not build.

    fresh: the call-outs whose results a kernel may write over, as over those of kernels; None for none of both.
    released: the names of the inputs that nobody else holds.
    """
    return _Fuser(loops, apart, for_a_gpu).plan(fresh, released)


class _Fuser:
    def __init__(self, loops: Loops, apart: frozenset[str], for_a_gpu: bool) -> None:
        self._loops = loops
        self._apart, self._for_a_gpu = apart, for_a_gpu
        self._copies: dict[Value, Value] = {}
        steps = split_reductions(loops.steps, *(FOR_GPU if for_a_gpu else FOR_CPU), loops.views)
        steps = steps if for_a_gpu else absorbed(steps, loops, apart)
        self._steps = [s for step in steps for s in self._compacted(step)]
        self._producer: dict[Value, Step] = {}
        for step in self._steps:
            for value in _outputs(step):
                self._producer[value] = step
        self._costs: dict[Value, tuple[int, list[Value]]] = {}
        self._required = self._needed_outside()
        if for_a_gpu:
            arrange(self._steps, self._fixed())
        self._users = self._consumers()
        self._sums = {} if for_a_gpu or apart else running_sums(self._steps, self._users, self._required)
        self._roots = self._chosen()
        self._items: list[Item] = []
        self._position: dict[Value, int] = {}
        self._told: dict[str, int] = {}  # the item from which on a symbolic size is known
        self._read: dict[Value, int] = dict.fromkeys(
            loops.into.values(), 0
        )  # the last item that reads what is replaced

    def plan(self, fresh: Collection[str] | None, released: Collection[str]) -> Plan:
        told = 0
        for step in self._steps:
            if isinstance(step, Computation):
                for symbol in step.symbols:
                    self._told.setdefault(symbol, told)
                if step.out in self._sums:
                    self._added(step)
                elif step.out in self._roots:
                    self._placed(step)
            else:
                self._append(step, _outputs(step))
                told = len(self._items) if isinstance(step, Call) else told
        self._store()
        items = [i for i in self._items if not isinstance(i, Kernel) or i.stored]
        if not self._apart:
            items = reordered(items, self._loops, self.base, fresh or (), released, self._told_by_calls())
        write_in_place(items, self._loops, self.base)
        if not self._for_a_gpu:
            if fresh is not None:
                write_over_dead(items, self._loops, self.base, fresh)
            return Plan(bundled(items, self.base, self._apart), self._loops)
        return Plan(items, self._loops)

    def _told_by_calls(self) -> set[str]:
        """The symbolic sizes that no input tells."""
        return {*self._told} - symbols_in(size for value in self._loops.inputs for size in value.shape)

    def _compacted(self, step: Step) -> list[Step]:
        """A step that runs as it is wants compact arguments: copies are put before the first that wants one."""
        if not isinstance(step, Opaque):
            return [step]
        copies: list[Step] = []
        arguments: list[Value | Computation] = []
        for value in step.arguments:
            if isinstance(value, Computation):
                arguments.append(value)
                continue
            fits = value.compact and (value.told or value not in self._loops.views)
            if not fits and value not in self._copies:
                self._copies[value] = Value(f"{value.name}_compact_{step.outputs[0].name}", value.shape, value.dtype)
                copies.append(as_it_lies(value, self._copies[value], step.nodes))
            arguments.append(self._copies.get(value, value))
        outputs = tuple(v if v.compact else Value(f"{v.name}_compact", v.shape, v.dtype) for v in step.outputs)
        opaque = Opaque(step.name, step.function, tuple(arguments), outputs, step.sizes, step.nodes)
        laid_out = [
            as_it_lies(made, v, step.nodes) for made, v in zip(outputs, step.outputs, strict=True) if made is not v
        ]
        return [*copies, opaque, *laid_out]

    def base(self, value: Value) -> Value:
        """What a torch view is a view of in the end; any other value itself."""
        while value in self._loops.views:
            value = self._loops.views[value]
        return value

    def _needed_outside(self) -> set[Value]:
        needed = {self.base(v) for v in self._loops.outputs}
        for step in self._steps:
            if not isinstance(step, Computation):
                needed.update(self.base(v) for v in step.inputs)
        return needed

    def _fixed(self) -> set[Value]:
        """The values of which somebody else knows how they lie."""
        views = self._loops.views
        return {*self._required, *self._loops.outputs, *views, *views.values(), *self._loops.into}

    def _consumers(self) -> dict[Value, list[Computation]]:
        """Who reads a value, seen through what only moves it; the dead are left out."""
        users: dict[Value, list[Computation]] = {}
        for step in reversed(self._steps):
            if not isinstance(step, Computation):
                continue
            if step.out not in users and step.out not in self._required:
                continue
            through = users.get(step.out, []) if self._shows(step) and step.out not in self._required else [step]
            for load in _loads(step.body):
                known = users.setdefault(load.value, [])
                known.extend(u for u in through if u not in known)
        return users

    def _chosen(self) -> set[Value]:
        """The values that members are made for."""
        roots: set[Value] = set()
        for step in self._steps:
            if not isinstance(step, Computation):
                continue
            value = step.out
            users = self._users.get(value, [])
            shows = self._shows(step)
            apart = users and not shows and self._apart.intersection(step.nodes)
            if value in self._required or (step.reduced and users) or apart or self._is_narrower(step, roots):
                self._sums.pop(value, None)
                roots.add(value)
            elif value in self._sums:
                roots.add(value)
            elif users and not shows:
                operations, loads = self._cost(step.body, value, roots)
                repeated = any(_repeats(user, value) for user in users)
                if value.numel == 1:  # a kernel computes it once, before its loops
                    continue
                if self._is_dear(operations, loads, len(users)) or (repeated and operations > 1):
                    roots.add(value)
        return roots

    def _shows(self, step: Computation) -> bool:
        """Whether a value is what another one is: moved, or on a GPU, which waits for memory, only in wider words."""
        source = _cast(step)
        if self._for_a_gpu and source is not None:
            return width(source.dtype) < width(step.out.dtype)
        return moves(step)

    def _is_narrower(self, step: Computation, roots: set[Value]) -> bool:
        """Whether a value in memory is read as this one alone, which takes less of it."""
        source = _cast(step)
        if not self._for_a_gpu or source is None:
            return False
        alone = source in roots and source not in self._required and self._users.get(source) == [step]
        return alone and width(source.dtype) > width(step.out.dtype)

    def _is_dear(self, operations: int, loads: int, users: int) -> bool:
        """Whether a value is better stored once than computed by each of its users.

        A GPU does a hundred operations while it moves an element there and back; what counts is what is read.
        """
        if users < 2:
            return False
        if self._for_a_gpu:
            kernels = min(users, KERNELS)
            return operations > CHEAP_ON_A_GPU or loads * kernels > 1 + kernels + loads
        return operations > CHEAP or loads > 1

    def _cost(self, body: Scalar, out: Value, roots: set[Value]) -> tuple[int, int]:
        """Operations and loads of an element of `out`, counting what is inlined. Functions and guards count dear.

        For a GPU a value that is read several times counts as one load, since its kernel reads it once.
        """
        count, loads = 0, []
        for node in walk(body):
            count += operations(node)
            if isinstance(node, Load):
                source = self._producer.get(node.value)
                if isinstance(source, Computation) and node.value not in roots:
                    if node.value not in self._costs:
                        self._cost(source.body, node.value, roots)
                    inner = self._costs[node.value]
                    count, loads = count + inner[0], [*loads, *inner[1]]
                elif node.value.numel != 1 and not (self._for_a_gpu and self._is_small(node.value, out)):
                    loads.append(node.value)
        read = list(dict.fromkeys(loads)) if self._for_a_gpu else loads
        self._costs[out] = count, read
        return count, len(read)

    def _is_small(self, value: Value, out: Value) -> bool:
        """Whether a value is so much smaller than another that it stays in the cache while that is computed."""
        small, large = value.numel.constant, out.numel.constant
        return small is not None and large is not None and small * SMALLER <= large

    def _append(self, item: Item, values: tuple[Value, ...]) -> None:
        self._items.append(item)
        for value in values:
            self._position[value] = len(self._items) - 1
        if not isinstance(item, Kernel):
            self._note_readers(len(self._items) - 1, {self.base(v) for v in item.inputs})

    def _note_readers(self, number: int, values: set[Value]) -> None:
        """What is written over an input comes no earlier than the last item that reads the input."""
        for value in values & self._read.keys():
            self._read[value] = max(self._read[value], number)

    def _inline(self, value: Value) -> Computation | None:
        source = self._producer.get(value)
        return source if isinstance(source, Computation) and value not in self._roots else None

    def _placed(self, computation: Computation) -> None:
        leaves, symbols = self._leaves(computation)
        first = max((self._position[v] for v in leaves if v in self._position), default=0)
        first = max([first, *(self._told[symbol] for symbol in symbols)])
        if computation.out in self._loops.into:
            first = max(first, self._read[self._loops.into[computation.out]])
        alone = bool(self._apart.intersection(computation.nodes))
        if not alone and computation.out.numel != 0:
            for number in range(len(self._items) - 1, first - 1, -1):
                kernel = self._items[number]
                if not isinstance(kernel, Kernel) or not self._gains(kernel, computation, leaves):
                    continue
                if self._join(number, computation):
                    self._position[computation.out] = number
                    self._note_readers(number, leaves)
                    return
        kernel = Kernel.seeded(computation)
        if not kernel.joined(computation, self._inline):
            raise ValueError(f"{computation.out.name}: does not fit a kernel of its own")
        self._append(kernel, (computation.out,))
        self._note_readers(len(self._items) - 1, leaves)

    def _added(self, step: Computation) -> None:
        """Put a running sum into the kernel of its last term; where it does not fit, it is no value in memory."""
        number = self._position.get(self._sums[step.out], -1)
        leaves, symbols = self._leaves(step)
        late = any(self._position.get(leaf, -1) > number for leaf in leaves)
        late = late or any(self._told[symbol] > number for symbol in symbols)
        if number < 0 or late or not self._join(number, step):
            self._roots.discard(step.out)
            return
        self._position[step.out] = number
        self._note_readers(number, leaves)

    def _gains(self, kernel: Kernel, computation: Computation, leaves: set[Value]) -> bool:
        """Whether the kernel makes or reads something large that the computation reads too, or both are one element."""
        if any(self._apart.intersection(m.nodes) for m in kernel.members):
            return False
        made = {m.out for m in kernel.members}
        if self._for_a_gpu and computation.reduced and kernel.cols:
            size = product(a.extent for a in (*computation.axes, *computation.reduced))
            if size == kernel.elements and (size.constant or TOGETHER) < TOGETHER:
                return True
        if kernel.elements == 1 and computation.out.numel == 1 and not computation.reduced:
            return True
        return bool(leaves & made) or any(v in leaves and v.numel != 1 for v in kernel.reads())

    def _join(self, number: int, computation: Computation) -> bool:
        kernel = self._items[number]
        assert isinstance(kernel, Kernel)
        if computation.out in self._loops.into:
            grown = kernel.copied()
            target = self._loops.into[computation.out]
            if not grown.joined(computation, self._inline) or not is_local(grown, computation.out, target):
                return False
            self._items[number] = grown
            return True
        if computation.reduced and not kernel.cols:
            return self._reseeded(number, kernel, computation)
        return kernel.joined(computation, self._inline)

    def _reseeded(self, number: int, kernel: Kernel, reduction: Computation) -> bool:
        """A reduction over what a pointwise kernel makes gives that kernel its rows and columns."""
        size = product(a.extent for a in (*reduction.axes, *reduction.reduced))
        if kernel.elements != size:
            return False
        fresh = Kernel.seeded(reduction)
        if not all(fresh.joined(member, self._inline) for member in [*kernel.members, reduction]):
            return False
        self._items[number] = fresh
        return True

    def _leaves(self, computation: Computation) -> tuple[set[Value], set[str]]:
        """The values that the computation reads from memory or from members, through all that is inlined, and sizes."""
        found: set[Value] = set()
        symbols: set[str] = set()
        stack = [computation]
        seen: set[Value] = set()
        while stack:
            step = stack.pop()
            symbols.update(step.symbols)
            for load in _loads(step.body):
                inner = self._inline(load.value)
                if inner is None:
                    found.add(load.value)
                elif load.value not in seen:
                    seen.add(load.value)
                    stack.append(inner)
        return found, symbols

    def _store(self) -> None:
        """Keep in memory what is read outside of its kernel."""
        read: set[Value] = set(self._required)
        for item in self._items:
            if isinstance(item, Kernel):
                read.update(item.reads())
        for item in self._items:
            if isinstance(item, Kernel):
                item.stored = [m.out for m in item.members if m.out in read]


def _outputs(step: Step) -> tuple[Value, ...]:
    return (step.out,) if isinstance(step, Computation) else step.outputs


def _loads(body: Scalar) -> list[Load]:
    return [node for node in walk(body) if isinstance(node, Load)]


def _cast(step: Computation) -> Value | None:
    """The value of which an element is one, in another type."""
    body = step.body
    source = body.arguments[0] if isinstance(body, Operation) and body.name == "Cast" and not step.reduced else None
    return source.value if isinstance(source, Load) else None


def _repeats(user: Computation, value: Value) -> bool:
    """Whether a user would compute an element of the value several times over."""
    domain = product(a.extent for a in (*user.axes, *user.reduced))
    if domain.constant is None or value.numel.constant is None:
        return domain != value.numel
    return domain.constant >= 2 * max(value.numel.constant, 1)
