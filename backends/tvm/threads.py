"""TVM's parallel loops on torch's own OpenMP threads.

TVM brings a thread pool of its own. Its threads and torch's spin against one another while they wait, which makes a
training step several times slower. TVM lets a process replace the function that starts a parallel loop; ours asks
torch how many threads to use and starts them by the OpenMP library that torch is bound to. It is LLVM IR, compiled by
TVM once and kept in the cache, so that TVM's compiler need not be loaded for it again; the addresses of torch's
functions are given to it when it is loaded.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import platform
import tempfile
from pathlib import Path

import torch
import tvm_ffi
from tvm_ffi import Module

from bridge.backends.tvm.built import WORKER, load_library
from bridge.backends.tvm.loading import load_core
from bridge.runtime.cache import users_cache
from bridge.runtime.worker import shared
from bridge.versions import installed

_CALLED = {
    "threads": "_ZN2at15get_num_threadsEv",  # at::get_num_threads: also sets up a thread that torch has not met yet
    "parallel": "GOMP_parallel",
    "barrier": "GOMP_barrier",
    "team_size": "omp_get_num_threads",
    "thread": "omp_get_thread_num",
}

# A kernel divides its loop by the team size that OpenMP really gave: under OMP_DYNAMIC and OMP_THREAD_LIMIT it is less
# than what was asked for. After a fork OpenMP's threads are gone and a parallel region would wait for them forever, so
# the loop runs on the one thread that is there.
_LAUNCHER = r"""
{layout}
%Work = type {{ ptr, ptr, i32 }}
%Team = type {{ ptr, i32 }}
@forked = internal global i32 0
{called}
@kind = private constant [13 x i8] c"RuntimeError\00"
@message = private constant [42 x i8] c"a task of a kernel's parallel loop failed\00"

define internal void @task(ptr %work) {{
  %team = alloca %Team
  %team_size_at = getelementptr %Team, ptr %team, i32 0, i32 1
  %closure_at = getelementptr %Work, ptr %work, i32 0, i32 1
  %failure_at = getelementptr %Work, ptr %work, i32 0, i32 2
  %team_size_of = load ptr, ptr @team_size
  %team_size = call i32 %team_size_of()
  %thread_of = load ptr, ptr @thread
  %thread = call i32 %thread_of()
  store ptr null, ptr %team
  store i32 %team_size, ptr %team_size_at
  %body = load ptr, ptr %work
  %closure = load ptr, ptr %closure_at
  %failure = call i32 %body(i32 %thread, ptr %team, ptr %closure)
  %failed = icmp ne i32 %failure, 0
  br i1 %failed, label %report, label %done
report:
  store atomic i32 %failure, ptr %failure_at monotonic, align 4
  br label %done
done:
  ret void
}}

define internal i32 @launch(ptr %body, ptr %closure, i32 %wanted) {{
  %threads_of = load ptr, ptr @threads
  %available = call i32 %threads_of()
  %any = icmp slt i32 %wanted, 1
  %fewer = icmp slt i32 %wanted, %available
  %wanted_or_fewer = select i1 %fewer, i32 %wanted, i32 %available
  %size = select i1 %any, i32 %available, i32 %wanted_or_fewer
  %is_forked = load i32, ptr @forked
  %no_others = icmp ne i32 %is_forked, 0
  %one = icmp slt i32 %size, 2
  %alone = or i1 %no_others, %one
  br i1 %alone, label %by_itself, label %in_team
by_itself:
  %team = alloca %Team
  %team_size_at = getelementptr %Team, ptr %team, i32 0, i32 1
  store ptr null, ptr %team
  store i32 1, ptr %team_size_at
  %result = call i32 %body(i32 0, ptr %team, ptr %closure)
  ret i32 %result
in_team:
  %work = alloca %Work
  %closure_at = getelementptr %Work, ptr %work, i32 0, i32 1
  %failure_at = getelementptr %Work, ptr %work, i32 0, i32 2
  store ptr %body, ptr %work
  store ptr %closure, ptr %closure_at
  store i32 0, ptr %failure_at
  %run_parallel = load ptr, ptr @parallel
  call void %run_parallel(ptr @task, ptr %work, i32 %size, i32 0)
  %failure = load i32, ptr %failure_at
  %failed = icmp ne i32 %failure, 0
  br i1 %failed, label %raise, label %done
raise:
  %tell = load ptr, ptr @set_error
  call void %tell(ptr @kind, ptr @message)
  ret i32 %failure
done:
  ret i32 0
}}

define internal i32 @wait_for_all(i32 %thread, ptr %team) {{
  %wait = load ptr, ptr @barrier
  call void %wait()
  ret i32 0
}}
"""

LAUNCHES = {"__TVMBackendParallelLaunch": "launch", "__TVMBackendParallelBarrier": "wait_for_all"}
"""By the name under which TVM looks for it what the launcher puts in its place."""

_ADDRESS_OF = """
define i32 @__tvm_ffi_{name}(ptr %self, ptr %arguments, i32 %count, ptr %result) {{
  %padding_at = getelementptr i8, ptr %result, i64 4
  %value_at = getelementptr i8, ptr %result, i64 8
  store i32 1, ptr %result
  store i32 0, ptr %padding_at
  store i64 ptrtoint (ptr @{name} to i64), ptr %value_at
  ret i32 0
}}
"""

_TARGET = r"""
!llvm.module.flags = !{!0}
!0 = !{i32 2, !"tvm_target", !"{\22kind\22:\22llvm\22}"}
"""


@functools.cache
def install() -> str | None:
    """Put the parallel loops of every kernel that is loaded from now on into torch's threads, in the whole process.

    Returns None, or the reason for which TVM's own thread pool stays.
    """
    try:
        addresses = _addresses()
    except LookupError as missing:
        return f"kernels run on TVM's own thread pool: {missing.args[0]}"
    try:
        module = _launcher()
    except Exception as failure:  # whatever TVM or the linker raises; kernels run on TVM's threads too
        return f"kernels run on TVM's own thread pool: the launcher cannot be built: {failure}"
    for role, address in addresses.items():
        ctypes.c_void_p.from_address(module[role]()).value = address
    register = _tvm_ffi().TVMFFIEnvModRegisterContextSymbol
    register.argtypes = [ctypes.c_char_p, ctypes.c_void_p]
    for symbol, name in LAUNCHES.items():
        if register(symbol.encode(), module[name]()) != 0:
            return f"kernels run on TVM's own thread pool: TVM does not let {symbol} be replaced"
    os.register_at_fork(after_in_child=functools.partial(_run_alone, module))  # holds the module for good, too
    return None


def _addresses() -> dict[str, int]:
    """Where the functions that the launcher calls are in this process. Raises LookupError with the reason.

    What the dynamic linker finds for everybody comes first, since it came first for torch as well: a preloaded OpenMP
    library, or the one that torch's wheel brings. Then what torch's library was linked with.
    """
    if "ATen parallel backend: OpenMP" not in torch.__config__.parallel_info():
        raise LookupError("this torch was built without OpenMP")
    path = Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"
    try:
        libraries = (ctypes.CDLL(None), ctypes.CDLL(str(path)))
    except OSError as failure:
        raise LookupError(f"torch's library cannot be opened: {failure}") from failure
    addresses = {role: _address(symbol, *libraries) for role, symbol in _CALLED.items()}
    return addresses | {"set_error": _address("TVMFFIErrorSetRaisedFromCStr", _tvm_ffi())}


def _address(symbol: str, *libraries: ctypes.CDLL) -> int:
    for library in libraries:
        if hasattr(library, symbol):
            address = ctypes.cast(getattr(library, symbol), ctypes.c_void_p).value
            if address:
                return address
    raise LookupError(f"this process has no {symbol}")


def _tvm_ffi() -> ctypes.CDLL:
    return ctypes.CDLL(tvm_ffi.libinfo.find_libtvm_ffi())


def _launcher() -> Module:
    """The launcher as a library: from the cache, or compiled."""
    cpu, library = torch.device("cpu"), "launcher.so"
    about = [Path(__file__).read_text(), *platform.uname()[4:], *(str(installed(name)) for name in ("tvm", "tvm_ffi"))]
    key = hashlib.sha256("\n".join(about).encode()).hexdigest()
    with tempfile.TemporaryDirectory() as name:
        folder, cache = Path(name), users_cache()
        if not cache.fetch(key, folder):
            shared(WORKER).start()  # whoever has no launcher mostly has no kernels either: the worker loads meanwhile
            _compile(folder / library)
            cache.store(key, folder)
        return load_library(folder / library, cpu)


def _compile(library: Path) -> None:
    """Write the launcher as a shared library."""
    load_core()
    import tvm

    names = [*_CALLED, "set_error"]
    called = "\n".join(f"@{name} = internal global ptr null" for name in names)
    exports = "".join(_ADDRESS_OF.format(name=name) for name in (*LAUNCHES.values(), *names, "forked"))
    program = library.with_suffix(".ll")
    program.write_text(_LAUNCHER.format(layout=_layout(), called=called) + exports + _TARGET)
    tvm.runtime.load_module(str(program)).export_library(str(library))
    program.unlink()


def _layout() -> str:
    """The data layout and the triple that TVM's LLVM compiles for here, as it writes them itself."""
    import tvm

    from bridge.backends.tvm.compat import tirx

    nothing = tirx.PrimFunc([], tirx.Evaluate(tirx.IntImm("int32", 0))).with_attr("global_symbol", "nothing")
    text = tvm.compile(tvm.IRModule({"nothing": nothing}), target=tvm.target.Target("llvm")).mod.inspect_source("ll")
    return "\n".join(line for line in text.splitlines() if line.startswith(("target datalayout", "target triple")))


def _run_alone(module: Module) -> None:
    ctypes.c_int.from_address(module["forked"]()).value = 1
