"""Prompt lengths in the served model's own tokens, chat template included.

Needs the ``tokenizers`` library (an optional dependency) and the target's ``tokenizer.json``: in its folder,
or for a Hugging Face id in the local cache. Nothing is downloaded. Where it is not to be had, the reason is
told and lengths stay unknown: they are never guessed from characters.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Final, NoReturn, Protocol

import jinja2
from jinja2.sandbox import ImmutableSandboxedEnvironment

from specbench.config.model import Target
from specbench.config.source import is_path
from specbench.workloads.source_request import SourceRequest

_SPECIAL: Final = ("bos_token", "eos_token", "pad_token", "unk_token")


class NoTokenizer(Exception):
    """The target's tokenizer is not here; the message says why and what would help."""


class Tokens(Protocol):
    """What packing a prompt to a length needs."""

    name: str

    def encode(self, text: str) -> list[int]:
        """Token ids, without special tokens."""

    def decode(self, ids: Sequence[int]) -> str:
        """Text of token ids."""

    def prompt_tokens(self, request: SourceRequest) -> int:
        """Tokens of the prompt as the server will see it."""


class ServedTokens:
    """The target's tokenizer and chat template."""

    def __init__(self, tokenizer: Any, template: str | None, special: Mapping[str, str], name: str) -> None:
        self.name = name
        self._tokenizer = tokenizer
        self._special = dict(special)
        self._template = _environment().from_string(template) if template is not None else None

    def encode(self, text: str) -> list[int]:
        """See `Tokens`."""
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        """See `Tokens`."""
        text: str = self._tokenizer.decode(list(ids), skip_special_tokens=False)
        return text

    def prompt_tokens(self, request: SourceRequest) -> int:
        """See `Tokens`. A chat template writes special tokens itself; a plain prompt gets the tokenizer's.

        Raises:
            NoTokenizer: messages without a chat template, or a template that refuses them.
        """
        if request.prompt is not None:
            return len(self._tokenizer.encode(request.prompt, add_special_tokens=True).ids)
        return len(self.encode(self.render(request)))

    def render(self, request: SourceRequest) -> str:
        """The prompt as text: the chat template over the messages, ready for the model's turn.

        Raises:
            NoTokenizer: as `prompt_tokens`.
        """
        if request.prompt is not None:
            return request.prompt
        if self._template is None:
            raise NoTokenizer(f"{self.name} has no chat template")
        try:
            return self._template.render(
                messages=[_flat(message) for message in request.messages or ()],
                tools=list(request.tools) if request.tools else None,
                add_generation_prompt=True,
                **self._special,
            )
        except jinja2.TemplateError as error:
            raise NoTokenizer(f"the chat template refuses {request.id!r}: {error}") from None

    def most_tokens(self, request: SourceRequest) -> int:
        """A bound without tokenising: every token stands for at least one byte; 8 for special tokens."""
        return len(self.render(request).encode("utf-8", "surrogatepass")) + 8


def served_tokens(target: Target, args: Mapping[str, Any] | None = None) -> ServedTokens:
    """The tokenizer that the target will be served with.

    Args:
        args: engine flags; a ``chat-template`` that is a file is used instead of the model's own.

    Raises:
        NoTokenizer: it is not here, or the library is not.
    """
    try:
        import tokenizers
    except ImportError:
        raise NoTokenizer(
            "the `tokenizers` library is not installed (pip install 'specbench-llm[tokenizers]')"
        ) from None
    named = target.tokenizer or target.model
    name = Path(named).name if is_path(named) else named
    folder = _folder(named, None if target.tokenizer else target.revision)
    file = folder / "tokenizer.json"
    if not file.is_file():
        raise NoTokenizer(f"{name} has no tokenizer.json")
    try:
        tokenizer = tokenizers.Tokenizer.from_file(str(file))
    except Exception as error:  # the library raises plain Exception for a damaged file
        raise NoTokenizer(f"{file.name} of {name} cannot be read: {error}") from None
    config = _json(folder / "tokenizer_config.json")
    override = {str(k).lstrip("-").replace("_", "-"): v for k, v in (args or {}).items()}.get("chat-template")
    template = _template(folder, config)
    if isinstance(override, str):
        chosen = Path(override)
        template = chosen.read_text("utf-8") if chosen.is_file() else override
    special = {name: text for name in _SPECIAL if (text := _token_text(config.get(name))) is not None}
    try:
        return ServedTokens(tokenizer, template, special, name)
    except jinja2.TemplateError as error:
        raise NoTokenizer(f"the chat template of {name} is not one: {error}") from None


def _folder(named: str, revision: str | None) -> Path:
    """A path as it is; a Hugging Face id as its snapshot in the local cache."""
    if is_path(named):
        path = Path(named).expanduser()
        return path if path.is_dir() else path.parent
    home = Path(os.environ.get("HF_HOME") or Path.home() / ".cache" / "huggingface")
    cache = Path(os.environ.get("HF_HUB_CACHE") or home / "hub")
    repo = cache / ("models--" + named.replace("/", "--"))
    ref = repo / "refs" / (revision or "main")
    commit = ref.read_text("utf-8").strip() if ref.is_file() else (revision or "none")
    snapshot = repo / "snapshots" / commit
    if not snapshot.is_dir():
        raise NoTokenizer(
            f"{named} is not in the local Hugging Face cache: start the engine once, or give "
            "target.tokenizer a folder with its tokenizer.json"
        )
    return snapshot


def _template(folder: Path, config: Mapping[str, Any]) -> str | None:
    for name in ("chat_template.jinja", "chat_template.json"):
        file = folder / name
        if file.is_file():
            found = _json(file).get("chat_template") if name.endswith("json") else file.read_text("utf-8")
            if isinstance(found, str):
                return found
    value = config.get("chat_template")
    if isinstance(value, list):  # several by name
        named = {x.get("name"): x.get("template") for x in value if isinstance(x, dict)}
        value = named.get("default")
    return value if isinstance(value, str) else None


def _json(file: Path) -> dict[str, Any]:
    try:
        value = json.loads(file.read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def _token_text(value: Any) -> str | None:
    if isinstance(value, dict):
        value = value.get("content")
    return value if isinstance(value, str) else None


def _flat(message: Mapping[str, Any]) -> dict[str, Any]:
    """A message with its text parts joined, as servers hand it to templates that expect text."""
    content = message.get("content")
    if isinstance(content, list):
        content = "".join(str(part.get("text", "")) for part in content if isinstance(part, Mapping))
    return {**message, "content": content}


def _environment() -> ImmutableSandboxedEnvironment:
    """As Hugging Face templates are written for: trimmed blocks, ``raise_exception``, plain ``tojson``."""
    # Not HTML: a template writes a prompt, in which < and & must stay what they are.
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _refuse
    environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
    return environment


def _to_json(value: Any, indent: int | None = None, ensure_ascii: bool = False, **_: Any) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent)


def _refuse(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)
