"""Torch-native attention that also serves verify steps and draft steps."""

from __future__ import annotations

from typing import Any

import torch
from sglang.srt.layers.attention.torch_native_backend import TorchNativeAttnBackend
from sglang.srt.mem_cache.memory_pool import KVWriteLoc
from torch.nn.functional import scaled_dot_product_attention

BACKEND = "torch_native"


class SpecTorchNative(TorchNativeAttnBackend):
    """SGLang's own backend for ordinary steps; a loop over requests for the others.

    ``step`` is the place in the draft chain that this backend serves; None for a target.
    """

    def __init__(self, runner: Any, step: int | None = None) -> None:
        super().__init__(runner)
        self.step = step

    def forward_extend(
        self, q: Any, k: Any, v: Any, layer: Any, forward_batch: Any, save_kv_cache: bool = True
    ) -> Any:
        mode = forward_batch.forward_mode
        if not (mode.is_target_verify() or mode.is_draft_extend_v2()):
            return super().forward_extend(q, k, v, layer, forward_batch, save_kv_cache)
        self._save(layer, forward_batch, k, v, save_kv_cache)
        if mode.is_target_verify():
            n = forward_batch.spec_info.draft_token_num
            prefixes = forward_batch.seq_lens.tolist()
            masks = _verify_masks(forward_batch.spec_info.custom_mask, prefixes, n)
            return self._attend(
                q, layer, forward_batch, [p + n for p in prefixes], [n] * len(prefixes), masks
            )
        queries, keys = forward_batch.extend_seq_lens.tolist(), forward_batch.seq_lens.tolist()
        masks = [_causal(a, b) for a, b in zip(keys, queries, strict=True)]
        return self._attend(q, layer, forward_batch, keys, queries, masks)

    def forward_decode(
        self, q: Any, k: Any, v: Any, layer: Any, forward_batch: Any, save_kv_cache: bool = True
    ) -> Any:
        if self.step is None:
            return super().forward_decode(q, k, v, layer, forward_batch, save_kv_cache)
        q = q.reshape(-1, layer.tp_q_head_num * layer.qk_head_dim)
        self._save(layer, forward_batch, k, v, save_kv_cache)
        keys = [s + self.step + 1 for s in forward_batch.seq_lens.tolist()]
        return self._attend(q, layer, forward_batch, keys, [1] * len(keys), [None] * len(keys))

    def _save(self, layer: Any, forward_batch: Any, k: Any, v: Any, save: bool) -> None:
        if save and k is not None and v is not None:
            place = KVWriteLoc(forward_batch.out_cache_loc, self.swa_out_cache_loc)
            self.token_to_kv_pool.set_kv_buffer(layer, place, k, v)

    def _attend(
        self, q: Any, layer: Any, forward_batch: Any, keys: list[int], queries: list[int], masks: list[Any]
    ) -> torch.Tensor:
        """``keys`` and ``queries`` are lengths per request; a mask is [queries, keys] or None for all."""
        out = q.new_empty((q.shape[0], layer.tp_q_head_num * layer.v_head_dim))
        q_heads = q.view(-1, layer.tp_q_head_num, layer.qk_head_dim)
        out_heads = out.view(-1, layer.tp_q_head_num, layer.v_head_dim)
        all_k = self.token_to_kv_pool.get_key_buffer(layer.layer_id)
        all_v = self.token_to_kv_pool.get_value_buffer(layer.layer_id)
        slots = self.req_to_token_pool.req_to_token
        start = 0
        for i, (n_keys, n_queries) in enumerate(zip(keys, queries, strict=True)):
            if n_queries == 0:
                continue
            index = slots[forward_batch.req_pool_indices[i], :n_keys].long()
            end = start + n_queries
            one = scaled_dot_product_attention(
                q_heads[start:end].movedim(0, 1).unsqueeze(0),
                all_k[index].movedim(0, 1).to(q.dtype).unsqueeze(0),
                all_v[index].movedim(0, 1).to(q.dtype).unsqueeze(0),
                attn_mask=masks[i],
                scale=layer.scaling,
                enable_gqa=layer.tp_q_head_num != layer.tp_k_head_num,
            )
            out_heads[start:end] = one.squeeze(0).movedim(1, 0)
            start = end
        return out


def _verify_masks(flat: torch.Tensor | None, prefixes: list[int], n: int) -> list[torch.Tensor]:
    """Who sees whom in a verify step of ``n`` nodes; SGLang's mask covers the prefix, or the nodes alone."""
    masks, start = [], 0
    whole = flat is not None and flat.numel() == sum((p + n) * n for p in prefixes)
    for prefix in prefixes:
        if flat is not None and whole:
            end = start + (prefix + n) * n
            masks.append(flat[start:end].view(n, prefix + n).bool())
            start = end
        elif flat is not None and flat.numel() >= n * n * len(prefixes):
            tree = flat[start : start + n * n].view(n, n).bool()
            masks.append(torch.cat([torch.ones(n, prefix, dtype=torch.bool), tree], 1))
            start += n * n
        else:
            masks.append(_causal(prefix + n, n))
    return masks


def _causal(keys: int, queries: int) -> torch.Tensor:
    return torch.arange(keys).unsqueeze(0) <= (torch.arange(queries) + keys - queries).unsqueeze(1)


class MultiStep:
    """The draft steps of a chain: step i sees the prefix and i + 1 drafted tokens."""

    def __init__(self, runner: Any, steps: int) -> None:
        self.attn_backends = [SpecTorchNative(runner, i) for i in range(steps - 1)]
        for backend in (self, *self.attn_backends):
            name_backend(backend)

    def init_forward_metadata(self, forward_batch: Any) -> None:
        for backend in self.attn_backends:
            backend.init_forward_metadata(forward_batch)


def name_backend(backend: Any) -> None:
    """Say which kind it is, as SGLang's factory does."""
    backend.prefill_attention_backend_str = backend.decode_attention_backend_str = BACKEND
