"""An SGLang platform of plain torch on a CPU, for tests only; written for SGLang 0.5.23.

The scheduler, the HTTP server, the speculative workers, the checks of the command line and the metrics are
SGLang's own; only its GPU kernels are replaced. How fast it is says nothing about a GPU.
"""

from __future__ import annotations

import torch

_library: torch.library.Library | None = None


def activate() -> str:
    """Entry point of ``sglang.srt.platforms``: the name of the platform's class."""
    _declare_torchvision_ops()
    return "sgl_cpu_oot.platform.CpuNativePlatform"


def _declare_torchvision_ops() -> None:
    """A CUDA build of torchvision beside a CPU torch looks up two operators when it is imported."""
    global _library
    try:
        torch.ops.torchvision.nms  # noqa: B018 - the look-up itself fails when it is missing
    except (AttributeError, RuntimeError):
        if torch.version.cuda is None:
            _library = torch.library.Library("torchvision", "FRAGMENT")
            for op in ("nms", "qnms"):
                _library.define(op + "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
