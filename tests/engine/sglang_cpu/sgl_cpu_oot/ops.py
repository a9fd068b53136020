"""The small kernels around a draft tree, in torch, request by request: clear, not fast.

A tree is three index tables of shape [requests, nodes]: the row of each node, its first child and its next
sibling; -1 is none. Arguments and names are those of SGLang's kernels, which these replace.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


def reconstruct(
    tree_mask: Tensor,
    verified_seq_len: Tensor,
    positions: Tensor,
    retrieve_index: Tensor,
    retrieve_next_token: Tensor,
    retrieve_next_sibling: Tensor,
    bs: int,
    n: int,
) -> None:
    """The index tables of trees that are given as masks of ancestors."""
    mask = tree_mask.view(bs, n, n).bool()
    for b in range(bs):
        parent = []
        for i in range(n):
            ancestors = [j for j in range(i) if mask[b, i, j]]
            parent.append(ancestors[-1] if ancestors else -1)
            positions[b * n + i] = int(verified_seq_len[b]) + len(ancestors)
            retrieve_index[b, i] = b * n + i
        for i in range(n):
            children = [j for j in range(i + 1, n) if parent[j] == i]
            retrieve_next_token[b, i] = children[0] if children else -1
            siblings = [j for j in range(i + 1, n) if parent[j] == parent[i]] if parent[i] >= 0 else []
            retrieve_next_sibling[b, i] = siblings[0] if siblings else -1


def build_tree(
    parent_list: Tensor,
    top_scores_index: Tensor,
    seq_lens: Tensor,
    tree_mask: Tensor,
    positions: Tensor,
    retrieve_index: Tensor,
    retrieve_next_token: Tensor,
    retrieve_next_sibling: Tensor,
    topk: int,
    spec_steps: int,
    num_verify_tokens: int,
    tree_mask_mode: int,
) -> None:
    """The tables and the mask of chains."""
    if topk != 1:
        raise NotImplementedError("the CPU platform of the tests knows chains only (eagle_topk 1)")
    n, start = num_verify_tokens, 0
    triangle = torch.tril(torch.ones(n, n, dtype=torch.bool))
    for b, length in enumerate(seq_lens.tolist()):
        with_prefix = int(tree_mask_mode) == 0
        prefix = torch.ones(n, length if with_prefix else 0, dtype=torch.bool)
        mask = torch.cat([prefix, triangle], 1).flatten()
        tree_mask[start : start + mask.numel()] = mask
        start += mask.numel()
        positions[b * n : (b + 1) * n] = torch.arange(length, length + n)
        retrieve_index[b] = torch.arange(b * n, (b + 1) * n)
        retrieve_next_token[b] = torch.tensor([*range(1, n), -1])
        retrieve_next_sibling[b] = -1


def verify_greedy(
    predicts: Tensor,
    accept_index: Tensor,
    accept_token_num: Tensor,
    candidates: Tensor,
    retrieve_index: Tensor,
    retrieve_next_token: Tensor,
    retrieve_next_sibling: Tensor,
    target_predict: Tensor,
    topk: int = -1,
) -> tuple[Tensor, Tensor, Tensor]:
    """Walk down each tree as long as a child is what the target predicts."""
    for b in range(candidates.shape[0]):
        node, accepted = 0, [int(retrieve_index[b, 0])]
        while len(accepted) < accept_index.shape[1]:
            want, child = int(target_predict[b, node]), int(retrieve_next_token[b, node])
            while child >= 0 and int(candidates[b, child]) != want:
                child = int(retrieve_next_sibling[b, child])
            if child < 0:
                break
            predicts[accepted[-1]] = want
            accepted.append(int(retrieve_index[b, child]))
            node = child
        predicts[accepted[-1]] = int(target_predict[b, node])
        accept_index[b, : len(accepted)] = torch.tensor(accepted, dtype=accept_index.dtype)
        accept_token_num[b] = len(accepted) - 1
    return predicts, accept_index, accept_token_num


def sample_verify(
    predicts: Tensor,
    accept_index: Tensor,
    accept_token_num: Tensor,
    candidates: Tensor,
    retrive_index: Tensor,
    retrive_next_token: Tensor,
    retrive_next_sibling: Tensor,
    uniform_samples: Tensor,
    uniform_samples_for_final_sampling: Tensor,
    target_probs: Tensor,
    draft_probs: Tensor,
    threshold_single: float = 1.0,
    threshold_acc: float = 1.0,
    deterministic: bool = True,
) -> None:
    """Draw from the target at each node; a child that is what was drawn is accepted: the target's own law."""
    for b in range(candidates.shape[0]):
        node, accepted = 0, [int(retrive_index[b, 0])]
        while True:
            cdf = target_probs[b, node].double().cumsum(0)
            drawn = len(accepted) - 1
            uniform = (
                float(uniform_samples[b, drawn])
                if drawn < uniform_samples.shape[1]
                else float(torch.rand(()))
            )
            point = torch.tensor(uniform * float(cdf[-1]), dtype=torch.float64)
            token = int(torch.searchsorted(cdf, point, right=True).clamp(max=cdf.numel() - 1))
            child = int(retrive_next_token[b, node])
            while child >= 0 and int(candidates[b, child]) != token:
                child = int(retrive_next_sibling[b, child])
            predicts[accepted[-1]] = token
            if child < 0 or len(accepted) >= accept_index.shape[1]:
                break
            accepted.append(int(retrive_index[b, child]))
            node = child
        accept_index[b, : len(accepted)] = torch.tensor(accepted, dtype=accept_index.dtype)
        accept_token_num[b] = len(accepted) - 1


def top_k_renorm(probs: Tensor, top_k: Tensor) -> Tensor:
    """Rows of ``probs`` with their likeliest ``top_k`` tokens alone, summing to 1 again.

    A batch of greedy and sampled requests takes this way too: greedy is a ``top_k`` of 1.
    """
    places = torch.arange(probs.shape[-1], device=probs.device)
    return _keep(probs, lambda _: places < top_k.reshape(-1, 1))


def top_p_renorm(probs: Tensor, top_p: Tensor) -> Tensor:
    """Rows of ``probs`` with the fewest likeliest tokens that reach ``top_p``, summing to 1 again."""
    return _keep(probs, lambda best: best.cumsum(-1) - best < top_p.reshape(-1, 1))


def _keep(probs: Tensor, chosen: Callable[[Tensor], Tensor]) -> Tensor:
    best, order = probs.sort(dim=-1, descending=True, stable=True)
    kept = torch.zeros_like(probs).scatter(-1, order, best * chosen(best))
    return kept / kept.sum(-1, keepdim=True)


def draft_locs(
    req_pool_indices: Tensor,
    req_to_token: Tensor,
    seq_lens: Tensor,
    out_cache_loc: Tensor,
    topk: int,
    num_steps: int,
    positions: Tensor | None = None,
    mrope: Tensor | None = None,
) -> None:
    """KV slots of the tokens that will be drafted."""
    width = topk * num_steps
    for i, (row, length) in enumerate(zip(req_pool_indices.tolist(), seq_lens.tolist(), strict=True)):
        out_cache_loc[i * width : (i + 1) * width] = req_to_token[row, length : length + width]


def verify_locs(
    *,
    req_pool_indices: Tensor,
    req_to_token: Tensor,
    start_offset: Tensor,
    end_offset: Tensor,
    batch_size: int,
    draft_token_num: int,
    device: object,
) -> Tensor:
    """KV slots of the tokens that a verify step looks at."""
    out = torch.zeros(batch_size * draft_token_num, dtype=torch.int64)
    place = 0
    spans = zip(req_pool_indices.tolist(), start_offset.tolist(), end_offset.tolist(), strict=False)
    for row, start, end in spans:
        out[place : place + end - start] = req_to_token[row, start:end]
        place += end - start
    return out


def assign_req_to_token(
    req_pool_indices: Tensor,
    req_to_token: Tensor,
    start_offset: Tensor,
    end_offset: Tensor,
    out_cache_loc: Tensor,
    batch_size: int,
) -> None:
    """Write down which KV slots a request's next tokens have."""
    place = 0
    spans = zip(req_pool_indices.tolist(), start_offset.tolist(), end_offset.tolist(), strict=False)
    for row, start, end in spans:
        req_to_token[row, start:end] = out_cache_loc[place : place + end - start].to(req_to_token.dtype)
        place += end - start


def fill_front(num_front: Tensor, out_cache_loc: Tensor, front: Tensor) -> None:
    """The first slots of each request, packed."""
    window = out_cache_loc.view(num_front.numel(), -1)
    place = 0
    for b, n in enumerate(num_front.tolist()):
        front[place : place + n] = window[b, :n]
        place += n


def fill_accept(accept_index: Tensor, out_cache_loc: Tensor, accept_out: Tensor, size: int) -> None:
    """The slots of accepted tokens, packed."""
    kept = accept_index.reshape(-1)[:size]
    kept = kept[kept > -1].long()
    accept_out[: kept.numel()] = out_cache_loc[kept]


def fill_bonus(
    accept_tokens: Tensor, accept_lens: Tensor, bonus_tokens: Tensor, stride: int, bs: int
) -> None:
    """The last token of each request's step."""
    index = torch.arange(bs) * stride + accept_lens[:bs].long() - 1
    bonus_tokens[:bs] = accept_tokens.reshape(-1)[index].to(bonus_tokens.dtype)
