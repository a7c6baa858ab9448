"""TVM's importer of exported programs gives layer norm's output for its mean and its reciprocal deviation, too.

Seen: three results of the input's shape. Right: mean and rstd of one element a row, which every backward reads.
"""

import torch
from torch.export import export
from tvm.relax.frontend.torch import from_exported_program


class Norm(torch.nn.Module):
    def forward(self, x):
        return torch.ops.aten.native_layer_norm(x, [8], None, None, 1e-5)


module = from_exported_program(export(Norm(), (torch.randn(4, 8),)))
shapes = [tuple(int(n) for n in field.shape.values) for field in module["main"].ret_ty.fields]
assert shapes == [(4, 8), (4, 1), (4, 1)], f"the results have the shapes {shapes}"
