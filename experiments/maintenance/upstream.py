"""Every fault of torch or TVM that the bridge works around: where it was reported, and what goes once it is mended.

Each has a script of its own in `faults/`, which says what is seen and what is right, and ends without an error once it
is mended. tests/experiments/test_upstream.py runs them all, and fails for one that is.
"""

from __future__ import annotations

import ast
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
FAULTS = Path(__file__).parent / "faults"
LIMIT = 900.0

UNREPORTED = "no report known"


@dataclass(frozen=True)
class Fault:
    """One fault.

    name: of its script. package: whose it is. reference: the report, "apache/tvm#19579".
    file, line: the work-around here, by a piece of its text; it can go with the fault.
    only: the version that has it, where the supported ones have not: its script fails with that version alone.
    """

    name: str
    package: str
    reference: str
    file: str
    line: str
    only: str = ""

    @property
    def script(self) -> Path:
        return FAULTS / f"{self.name}.py"

    @property
    def told(self) -> str:
        """What the script says of it: a title, what is seen, and what is right."""
        return ast.get_docstring(ast.parse(self.script.read_text(encoding="utf-8"))) or ""

    @property
    def title(self) -> str:
        return self.told.splitlines()[0]


TVM, TVM_FFI, TORCH = "apache-tvm", "apache-tvm-ffi", "torch"

UPSTREAM: tuple[Fault, ...] = (
    Fault("relu_loses_nan", TVM, "apache/tvm#19579", "backends/tvm/ops/activation.py", 'pointwise("relu"'),
    Fault("maximum_loses_nan", TVM, "apache/tvm#19579", "backends/tvm/compat.py", "def larger"),
    Fault("sum_of_float16", TVM, UNREPORTED, "backends/tvm/convert.py", "def summed_in"),
    Fault("full_of_infinity", TVM, UNREPORTED, "backends/tvm/ops/creation.py", "def filled"),
    Fault("slice_behind_its_end", TVM, UNREPORTED, "backends/tvm/ops/view.py", "def clamped"),
    Fault("times_zero_is_folded", TVM, UNREPORTED, "backends/tvm/kernels.py", "def exactly"),
    Fault("not_less_is_not_at_least", TVM, UNREPORTED, "backends/tvm/ops/sorting.py", "def may_lead"),
    Fault("nan_is_not_unequal", TVM, UNREPORTED, "backends/tvm/compat.py", "def unequal"),
    Fault("importer_of_layer_norm", TVM, UNREPORTED, "backends/tvm/ops/normalisation.py", "native_layer_norm"),
    Fault("json_ends_the_process", TVM_FFI, UNREPORTED, "bridge/versions.py", "ends the process", only="0.1.15"),
    Fault("attention_by_core_aten", TORCH, UNREPORTED, "bridge/passes/decompose.py", "attention_for_cpu.default"),
    Fault("dropout_between_layers", TORCH, UNREPORTED, "frontends/torch/adapters/rnn.py", "_layer_by_layer"),
    Fault("lstm_by_onednn", TORCH, "pytorch/pytorch#158007", "frontends/torch/adapters/base.py", "_without_onednn"),
    Fault("random_of_symbolic_size", TORCH, UNREPORTED, "frontends/torch/adapters/random.py", "def take_symbols"),
    Fault("none_becomes_zero", TORCH, "pytorch/pytorch#131794", "frontends/torch/undefined.py", "def reached_results"),
    Fault(
        "gradient_between_results", TORCH, "pytorch/pytorch#132929", "frontends/torch/aliasing.py", "def linked_results"
    ),
)


@dataclass(frozen=True)
class Seen:
    """How a fault's script ended. outcome: "mended", "there" or a signal's name; said: its last line."""

    outcome: str
    said: str


def tried(fault: Fault) -> Seen:
    """Run the script of a fault in a process of its own, which it may end."""
    command = [sys.executable, str(fault.script)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, check=False)
    said = (done.stderr.strip().splitlines() or [""])[-1]
    if done.returncode < 0:
        return Seen(signal.Signals(-done.returncode).name, said)
    return Seen("there" if done.returncode else "mended", said)
