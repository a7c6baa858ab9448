"""Every private name of torch that is imported, called or set anywhere here, and what it is used for.

A name is private if a part of it begins with an underscore; `next_id`, which no documentation knows, stands here too.
Nothing of torch is imported here, so that the list can be read where torch is absent or broken.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass, field

from bridge.signatures import Found, Sources

MOST_NAMES = 25
"""As many private names may training stand on: each is one that torch may change without a word."""

PEERS, CONFORMANCE = "the answers of a peer in bridge coverage --peers", "bridge.conformance"


@dataclass(frozen=True)
class Touched:
    """One private name.

    calls: the way in which it is called, by the first torch series for which the adapters call it so.
    written: where its parameters are written, if the name itself only hands them on.
    mentioned: for what is written in C++ and in no stub: a file of torch's that uses it as well.
    without: the tool that is lost where it is absent; "" where a training would not compile.
    """

    name: str
    calls: Mapping[str, str] = field(default_factory=dict)
    written: str = ""
    mentioned: str = ""
    without: str = ""

    def found(self, sources: Sources) -> Found | None:
        """What the name is in these sources of torch's; None where they do not have it."""
        if self.mentioned:
            text = sources.text(self.mentioned) or ""
            there = self.name.rpartition(".")[2] in text
            return Found(self.mentioned, "mentioned", ast.Pass()) if there else None
        named = sources.find(self.name)
        return sources.find(self.written) if named is not None and self.written else named

    def call(self, series: str) -> str:
        """How the adapter for a series calls it; "" where it is not called."""
        fitting = [since for since in self.calls if not since or numbers(since) <= numbers(series)]
        return self.calls[fitting[-1]] if fitting else ""


def numbers(series: str) -> tuple[int, ...]:
    """A series as numbers to order it by: "2.9" stands before "2.11"."""
    return tuple(int(part) for part in series.split("."))


def _called(name: str, call: str, **more: str) -> Touched:
    return Touched(name, {"": call}, **more)


TORCH: tuple[Touched, ...] = (
    Touched(
        "torch._dynamo.optimize",
        {
            "": "optimize(backend, dynamic=dynamic, guard_fail_fn=told)",
            "2.13": "optimize(backend, dynamic=dynamic, guard_fail_fn=told, isolate_recompiles=True)",
        },
        written="torch._dynamo.eval_frame._optimize",
    ),
    _called("torch._dynamo.config.patch", "patch(config)"),
    Touched("torch._dynamo.config.allow_rnn"),
    Touched("torch._dynamo.config.capture_dynamic_output_shape_ops"),
    Touched("torch._dynamo.config.capture_scalar_outputs"),
    Touched("torch._dynamo.config.dont_skip_tracing"),
    Touched("torch._dynamo.config.skip_nnmodule_hook_guards"),
    _called(
        "torch._dynamo.backends.common.aot_autograd",
        "aot_autograd(fw_compiler=f, bw_compiler=b, inference_compiler=i, partition_fn=p, decompositions=d)",
    ),
    _called("torch._dynamo.maybe_mark_dynamic", "maybe_mark_dynamic(tensor, 0)"),
    Touched("torch._dynamo.exc.InternalTorchDynamoError"),
    Touched("torch._dynamo.exc.TorchDynamoException"),
    _called("torch._dynamo.types.ConvertFrameReturn", "ConvertFrameReturn()"),
    Touched("torch._dynamo.utils.counters"),
    _called(
        "torch._decomp.decompositions._rnn_helper",
        "_rnn_helper(input, hidden, params, True, 1, 0.0, train, bidirectional, False, layer_fn)",
    ),
    _called("torch._functorch.config.patch", "patch(cse=False)"),
    Touched("torch._functorch.config.cse"),
    Touched("torch._ops.OpOverload"),
    _called("torch.utils._pytree.tree_flatten", "tree_flatten(tree)"),
    _called("torch.utils._pytree.tree_unflatten", "tree_unflatten(leaves, spec)"),
    _called("torch._subclasses.fake_tensor.unset_fake_temporarily", "unset_fake_temporarily()"),
    _called("torch._dynamo.source.ConstantSource", "ConstantSource(name)"),
    _called("torch._subclasses.FakeTensorMode", "FakeTensorMode(shape_env=sizes, allow_non_fake_inputs=True)"),
    _called("torch.utils._python_dispatch.TorchDispatchMode", "TorchDispatchMode()"),
    Touched("torch.utils._python_dispatch.TorchDispatchMode.ignore_compile_internals", without="bridge.audit"),
    _called("torch._C._current_autograd_node", "_current_autograd_node()", without="bridge.audit"),
    Touched("torch.utils.hooks.RemovableHandle.next_id"),
    Touched(
        "torch._C._dynamo.guards._empty_strided_cpu",
        mentioned="torch/_inductor/codegen/wrapper.py",
        without="some of the speed of small graphs",
    ),
    Touched("torch._C._dynamo.guards.TensorGuards", without="some of the speed of a compiled step"),
    Touched(
        "torch._C._dynamo.guards._empty_strided_cuda",
        mentioned="torch/_inductor/codegen/wrapper.py",
        without="some of the speed of small graphs",
    ),
    Touched(
        "torch._C._dynamo.guards._reinterpret_tensor",
        mentioned="torch/_inductor/codegen/wrapper.py",
        without="some of the speed of small graphs",
    ),
    Touched("torch._C._autograd._get_current_graph_task_keep_graph", without="memory of recordings"),
    Touched("torch._C._cuda_clearCublasWorkspaces", without="memory of recordings"),
    _called("torch._C._storage_Use_Count", "_storage_Use_Count(address)", without='mode="reduce-overhead"'),
    _called(
        "torch._inductor.standalone_compile",
        "standalone_compile(module, examples, dynamic_shapes='from_example_inputs')",
        without='fallback=["inductor"]',
    ),
    _called(
        "torch._inductor.decomposition.select_decomp_table",
        "select_decomp_table()",
        without=PEERS,
    ),
    Touched("torch._inductor.lowering.fallbacks", without=PEERS),
    Touched("torch._inductor.lowering.lowerings", without=PEERS),
    _called("torch._dispatch.python.enable_python_dispatcher", "enable_python_dispatcher()", without=CONFORMANCE),
    Touched(
        "torch.testing._internal.common_methods_invocations.op_db",
        without=CONFORMANCE,
    ),
    _called(
        "torch.onnx._internal.exporter._registration.ONNXRegistry.from_torchlib",
        "from_torchlib()",
        without=PEERS,
    ),
)
"""Those that a training needs first, then those of tools."""


ATTRIBUTES: Mapping[str, str] = {
    "_backward_hooks": "what is called with the gradient of a parameter, or after a module's backward",
    "_backward_pre_hooks": "what is called before it",
    "_boxed_call": "a compiled function empties the list of its inputs",
    "_buffers": "a module's own buffers by name",
    "_cdata": "the address of a storage",
    "_dynamo_dynamic_indices": "which dimensions of a tensor are symbols; its siblings are found by their pattern",
    "_dynamo_source": "where Dynamo found the value of a placeholder",
    "_forward_hooks": "what is called after a module's forward",
    "_forward_pre_hooks": "what is called before it",
    "_modules": "a module's own modules by name",
    "_optimizer_step_post_hooks": "what is called after an optimizer's step",
    "_optimizer_step_pre_hooks": "what is called before it",
    "_parameters": "a module's own parameters by name",
    "_post_accumulate_grad_hooks": "what is called when a parameter has its gradient",
    "_is_view": "a tensor is a view of another",
    "_is_zerotensor": "a tensor holds zeros, and no memory",
    "_schema": "the declaration of an overload",
    "_torchdynamo_orig_backend": "by what Dynamo tells two backends apart",
    "_wrapped_by_lr_sched": "a scheduler of torch's has replaced an optimizer's step",
}
"""Private attributes of torch's objects that are read or set, and what they say. Tests of capture rest on each."""
