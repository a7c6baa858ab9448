"""Kernels run on the GPU where there is one, else in Triton's interpreter, which has to be told before any import."""

from __future__ import annotations

import os

import torch

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"
