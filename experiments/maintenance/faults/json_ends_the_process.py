"""With apache-tvm-ffi 0.1.15, TVM 0.27 ends the process when it writes a module as JSON.

Seen: SIGSEGV. Right: a text; or the wheel of TVM asks for the tvm-ffi that it was built with.
"""

import tvm
from tvm import te

x = te.placeholder((4,), name="x")
function = te.create_prim_func([x, te.compute((4,), lambda i: x[i] + 1, name="y")])
assert tvm.ir.save_json(tvm.IRModule({"main": function}))
