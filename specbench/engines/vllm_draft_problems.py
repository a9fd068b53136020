"""What vLLM would refuse in K and the draft of an arm, by what the model folders say of themselves."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from specbench.engines.base import Problem
from specbench.engines.capabilities.schema import Capabilities, Draft, Method
from specbench.engines.checkpoint import Checkpoint, read_checkpoint, same_token_ids
from specbench.engines.flags import merge_args, normal_name
from specbench.engines.vllm_speculation import takes_json
from specbench.workloads.context import context_limit

if TYPE_CHECKING:
    from specbench.config.grid import Arm
    from specbench.config.model import EngineConfig

MTP_LAYERS: Final = ("num_nextn_predict_layers", "mtp_num_hidden_layers", "n_predict")
"""Keys of ``config.json`` with the number of multi-token-prediction layers (speculative.py:665-1050)."""

MEDUSA_HEADS: Final = ("medusa_num_heads", "num_heads")
BLOCK: Final = ("block_size", "dspark_block_size")

PARALLEL_TOKENS: Final = ("mask_token_id", "dspark_noise_token_id", "pard_token", "ptd_token_id")
"""Keys of a draft that was trained for parallel drafting (v1/spec_decode/llm_base_proposer.py:356-382)."""

_HEADS: Final = ("eagle", "medusa", "dflash", "dspark", "mtp")
_NOT_A_MODEL: Final = ("Eagle", "Medusa", "DFlash", "DSpark")


def k_problems(
    arm: Arm, method: Method, model: Checkpoint | None, where: str, known: Capabilities
) -> Iterator[Problem]:
    """Whether draft and K are there, and K is possible."""
    key = f"{where}.k"
    if method.draft in (Draft.REQUIRED, Draft.CLASS) and arm.draft is None:
        what = "a class path such as package.module.Class" if method.draft is Draft.CLASS else "a draft model"
        yield Problem(f"{where}.draft", f"{arm.method} needs {what}", "add `draft:` to this arm")
    if method.draft is Draft.NONE and arm.draft is not None:
        yield Problem(f"{where}.draft", f"{arm.method} takes no draft model", "remove `draft`")
    if method.draft is Draft.CLASS and arm.draft is not None and "." not in arm.draft.strip("./"):
        yield Problem(f"{where}.draft", f"{arm.draft!r} is no class path", "write package.module.Class")
    if arm.k is None:
        # A draft in the target's own checkpoint is found only when K is given (speculative.py:1147).
        if not method.k.default or (method.draft is Draft.BUNDLED and arm.draft is None):
            yield Problem(key, f"{arm.method} needs the number of draft tokens", "add `k: 3`, for example")
        return
    if arm.k < method.k.least:
        yield Problem(key, "K must be at least 1; K = 0 is the baseline, which is always run", "remove it")
    elif method.k.most is not None and arm.k > method.k.most:
        yield Problem(
            key, f"vLLM drafts at most {method.k.most} tokens per step", f"use at most {method.k.most}"
        )
    source = read_checkpoint(arm.draft) if arm.draft else model
    if source is not None:
        yield from _checkpoint_k(arm.k, method, source, key, known)


def _checkpoint_k(
    k: int, method: Method, source: Checkpoint, key: str, known: Capabilities
) -> Iterator[Problem]:
    if method.draft is Draft.BUNDLED and method.name != "dspark":
        layers = source.number(*MTP_LAYERS)
        if not layers:
            yield Problem(
                key.removesuffix("k") + "method",
                f"{source.path.name} names no multi-token-prediction layers in its config.json",
                "check that the checkpoint has them; otherwise vLLM will not start",
                fatal=False,
            )
        elif k > layers and (k % layers or not takes_json(known)):
            rule = f"a multiple of {layers}" if takes_json(known) else f"at most {layers}"
            yield Problem(key, f"the checkpoint has {layers} draft layers", f"use {rule}")
    heads = source.number(*MEDUSA_HEADS)
    if method.name == "medusa" and heads and k > heads:
        yield Problem(key, f"the checkpoint has {heads} Medusa heads", f"use at most {heads}")
    block = source.number(*BLOCK)
    if method.name == "dspark" and block and k != block:
        yield Problem(key, f"the head was trained for blocks of {block}", f"use k: {block}", fatal=False)


def draft_problems(
    engine: EngineConfig, arm: Arm, method: Method, model: Checkpoint | None, where: str, *, v1: bool
) -> Iterator[Problem]:
    """Whether the draft fits the target; ``v1`` when model runner V1 is certain."""
    yield from _parallelism(engine, arm, method, where, v1=v1)
    draft = read_checkpoint(arm.draft or "")
    yield from _length(engine, arm, method, draft, model, where)
    if draft is None:
        return
    key = f"{where}.draft"
    head = next((name for name in draft.architectures for word in _NOT_A_MODEL if word in name), None)
    if method.name == "draft_model" and head is not None:
        near = "eagle3" if "Eagle3" in head else "eagle" if "Eagle" in head else head.lower()
        use = next((name for name in (near, *_HEADS) if name in near), near)
        yield Problem(
            key, f"{head} is a head for the target's hidden states, not a model", f"use method: {use}"
        )
    suffixed = next((name for name in draft.architectures if name.endswith("Eagle")), None)
    if method.name == "eagle" and suffixed is not None:
        plain = suffixed.removesuffix("Eagle")
        yield Problem(
            key,
            f"{suffixed} is SGLang's name for this head; vLLM puts Eagle before the architecture itself",
            f"copy the folder and write {plain} in its config.json",
        )
    trained = draft.number(*PARALLEL_TOKENS) is not None or "dflash_config" in draft.config
    if arm.settings.get("parallel_drafting") is True and not trained:
        yield Problem(
            f"{where}.settings.parallel_drafting",
            f"{draft.path.name} was not trained for it: its config.json names no token for parallel drafting",
            "remove it, or use a draft made for it (PARD, P-EAGLE)",
        )
    if model is not None:
        yield from _vocabulary(arm, method, draft, model, key)


def _length(
    engine: EngineConfig,
    arm: Arm,
    method: Method,
    draft: Checkpoint | None,
    model: Checkpoint | None,
    where: str,
) -> Iterator[Problem]:
    """Whether the draft reads as far as the target does."""
    length = context_limit(merge_args(engine.args, arm.args)) or (model.max_positions if model else None)
    own = arm.settings.get("max_model_len")
    reads = draft.max_positions if draft else None
    if isinstance(own, int) and not isinstance(own, bool):
        for whose, most in (("draft's", reads), ("target's", length)):
            if most and own > most:
                yield Problem(
                    f"{where}.settings.max_model_len",
                    f"{own} is more than the {whose} {most} positions",
                    f"use at most {most}",
                )
        return
    # Medusa heads have no positions of their own.
    if method.name != "medusa" and reads and length and reads < length:
        yield Problem(
            f"{where}.draft",
            f"the draft reads {reads} tokens, the target {length}: one request that is longer stops the "
            "drafting of its whole batch",
            f"keep prompt + output + 2 K below {reads}, or set max-model-len to it",
            fatal=False,
        )


def _vocabulary(
    arm: Arm, method: Method, draft: Checkpoint, model: Checkpoint, key: str
) -> Iterator[Problem]:
    mixed = arm.settings.get("use_heterogeneous_vocab") is True
    if mixed or method.name not in ("draft_model", "eagle", "eagle3", "medusa"):
        return
    if draft.vocab_size and model.vocab_size and draft.vocab_size != model.vocab_size:
        yield Problem(
            key,
            f"the draft has {draft.vocab_size} tokens in its vocabulary, the target {model.vocab_size}",
            "use a draft of the target's family, or set use_heterogeneous_vocab: true"
            if method.name == "draft_model"
            else "use a head that was trained for this target",
            # Heads may have a reduced vocabulary of their own.
            fatal=method.name == "draft_model",
        )
    elif _other_words(draft, model):
        yield Problem(
            key,
            "tokenizer.json of draft and target differ: vLLM compares sizes only, and a draft "
            "that means other words is never accepted",
            "check that both tokenizers give the same ids",
            fatal=False,
        )


def _other_words(draft: Checkpoint, model: Checkpoint) -> bool:
    """Whether the tokenizers give tokens other ids, or may: they differ and cannot be read."""
    same = same_token_ids(draft, model)
    digests = (draft.tokenizer_sha256, model.tokenizer_sha256)
    return same is False or (same is None and None not in digests and digests[0] != digests[1])


def _parallelism(
    engine: EngineConfig, arm: Arm, method: Method, where: str, *, v1: bool
) -> Iterator[Problem]:
    own = arm.settings.get("draft_tensor_parallel_size")
    shared = next((v for n, v in engine.args.items() if normal_name(n) == "tensor-parallel-size"), 1)
    if own is None or own == shared:
        return
    key = f"{where}.settings.draft_tensor_parallel_size"
    if own != 1:
        yield Problem(
            key, f"{own} is neither 1 nor the target's tensor-parallel-size {shared}", "use one of them"
        )
    elif method.name == "draft_model":
        yield Problem(
            key,
            f"{own} differs from the target's tensor-parallel-size {shared}, which vLLM's V1 runner refuses",
            "make them equal",
            fatal=v1,
        )
