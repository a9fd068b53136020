"""The platform that SGLang asks about its device, and the places where its kernels are swapped."""

from __future__ import annotations

import importlib
import sys
import types
from collections.abc import Callable
from typing import Any

import psutil
import torch
from sglang.srt.platforms.device_mixin import PlatformEnum
from sglang.srt.platforms.interface import PlatformCapabilities, SRTPlatform

from sgl_cpu_oot import ops

WORKERS = (
    *("eagle_utils", "eagle_worker_common", "eagle_worker_v2", "spec_utils", "ngram_worker"),
    "standalone_worker_v2",
)
KERNELS: dict[str, Callable[..., Any]] = {
    "build_tree_kernel_efficient_func": ops.build_tree,
    "verify_tree_greedy_func": ops.verify_greedy,
    "assign_draft_cache_locs_contiguous_func": ops.draft_locs,
    "fill_front_out_cache_loc_func": ops.fill_front,
    "fill_accept_out_cache_loc_func": ops.fill_accept,
    "fill_bonus_tokens_func": ops.fill_bonus,
    "assign_req_to_token_pool_func": ops.assign_req_to_token,
    "top_k_renorm_prob": ops.top_k_renorm,
    "top_p_renorm_prob": ops.top_p_renorm,
}
"""Names in SGLang's modules for which its platform interface has no seam."""


class CpuNativePlatform(SRTPlatform):
    """A CPU with nothing but torch on it."""

    _enum = PlatformEnum.OOT
    device_name = "cpu"
    device_type = "cpu"
    capabilities = PlatformCapabilities(supports_triton=False, graph_capture=False)

    def get_device(self, device_id: int = 0) -> torch.device:
        return torch.device("cpu")

    def set_device(self, device: Any) -> None:
        pass

    def get_device_name(self, device_id: int = 0) -> str:
        return "cpu"

    def get_device_uuid(self, device_id: int = 0) -> str:
        return "cpu"

    def get_device_capability(self, device_id: int = 0) -> None:
        return None

    def get_device_total_memory(self, device_id: int = 0) -> int:
        return int(psutil.virtual_memory().total)

    def get_current_memory_usage(self, device: Any = None) -> float:
        memory = psutil.virtual_memory()
        return float(memory.total - memory.available)

    def get_available_memory(self, device_id: int = 0) -> tuple[int, int]:
        memory = psutil.virtual_memory()
        return memory.available, memory.total

    def get_default_attention_backend(self) -> str:
        return "torch_native"

    def get_default_speculative_draft_attention_backend(self, algorithm: Any) -> str:
        return "torch_native"

    def supports_speculative_algorithm(self, algorithm: Any) -> bool:
        return True

    def supports_speculative_draft_attention_backend(self, algorithm: Any, backend: str) -> bool:
        return backend == "torch_native"

    def get_compile_backend(self, mode: str | None = None) -> str:
        return "eager"

    def get_kv_pool_cls(self, *, kind: str) -> type | None:
        if kind != "mha":
            return None
        from sgl_cpu_oot.pool import CpuMHAPool

        return CpuMHAPool

    def get_dispatch_key_name(self) -> str:
        """Every fused operator falls back to its own torch implementation."""
        return "native"

    def get_speculative_cache_locs_fn(self) -> Callable[..., torch.Tensor]:
        return ops.verify_locs

    def init_backend(self) -> None:
        """Called once, before any model is loaded."""
        _import_without_kernel_wheel()
        for name in WORKERS:
            importlib.import_module("sglang.srt.speculative." + name)
        for name, module in list(sys.modules.items()):
            if name.startswith("sglang.") and module is not None:
                for kernel, replacement in KERNELS.items():
                    if kernel in vars(module):
                        setattr(module, kernel, replacement)
        eagle = sys.modules["sglang.srt.speculative.eagle_utils"]
        eagle.tree_speculative_sampling_target_only = ops.sample_verify
        _register_attention()


def _import_without_kernel_wheel() -> None:
    """One module imports a function from the CUDA kernel wheel by name: give it the torch one."""
    package, speculative = types.ModuleType("sgl_kernel"), types.ModuleType("sgl_kernel.speculative")
    package.__path__ = []
    speculative.reconstruct_indices_from_tree_mask = ops.reconstruct
    package.speculative = speculative
    own = {"sgl_kernel": package, "sgl_kernel.speculative": speculative}
    added = {name: module for name, module in own.items() if name not in sys.modules}
    sys.modules.update(added)
    importlib.import_module("sglang.kernels.ops.speculative.reconstruct_tree")
    for name in added:
        del sys.modules[name]
    for name in ("spec_tree", "cache_locs", "eagle"):
        importlib.import_module("sglang.kernels.ops.speculative." + name)


def _register_attention() -> None:
    from sglang.srt.layers.attention.attention_registry import register_attention_backend
    from sglang.srt.speculative.draft_utils import DraftBackendFactory

    from sgl_cpu_oot.attn import BACKEND, MultiStep, SpecTorchNative, name_backend

    register_attention_backend(BACKEND)(SpecTorchNative)

    def decode(factory: Any) -> MultiStep | None:
        steps = factory.speculative_num_steps
        return MultiStep(factory.draft_model_runner, steps) if steps > 1 else None

    def extend(factory: Any) -> SpecTorchNative:
        backend = SpecTorchNative(factory.draft_model_runner)
        name_backend(backend)
        return backend

    DraftBackendFactory.create_decode_backend = decode
    DraftBackendFactory.create_draft_extend_backend = extend
