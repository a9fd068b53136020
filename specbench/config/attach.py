"""Rules for configs of servers that already run (``engine.kind: endpoint``)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from specbench.config.grid import BASELINE, expand_arms

if TYPE_CHECKING:
    from collections.abc import Sequence

    from specbench.config.grid import Arm
    from specbench.config.model import ArmConfig, Config, EngineConfig
    from specbench.config.yaml_text import KeyPath

ATTACHED_KIND: Final = "endpoint"

_ONLY_ATTACHED: Final = ("url", "model", "headers", "ca", "allow_same")
_ONLY_LAUNCHED: Final = ("command", "args", "env")
_NOTHING_STARTED: Final = "nothing is started at an endpoint, so `{}` has no meaning: remove it"
_ONLY_HERE: Final = (
    f"is only for `kind: {ATTACHED_KIND}`, servers that already run: remove it or change the kind"
)
_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1", "0.0.0.0"})  # noqa: S104 - compared, not bound
_DEFAULT_PORT: Final = {"http": 80, "https": 443}


def attach_problems(config: Config) -> list[tuple[KeyPath, str]]:
    """What is wrong, as pairs of a key path and words with the mend."""
    found: list[tuple[KeyPath, str]] = []
    for name in ("", *config.other_engines):
        found += _engine_problems(_section(name), config.engine_named(name))
    for i, entry in enumerate(config.arms):
        names = [entry.engine] if isinstance(entry.engine, str) else entry.engine or [config.engine.kind]
        kinds = {config.engine_named("" if n == config.engine.kind else n).kind for n in names}
        found += _arm_problems(("arms", i), entry, kinds)
    return found or _shared(config)


def place(url: str) -> tuple[str, int, str]:
    """Host, port and path of a server: equal for two ways of writing the same address.

    Raises:
        ValueError: the port is no number.
    """
    parts = urlsplit(url.strip())
    host = (parts.hostname or "").rstrip(".")
    port = parts.port or _DEFAULT_PORT.get(parts.scheme, 0)
    return "localhost" if host in _LOOPBACK else host, port, base_url(parts.path)


def base_url(url: str) -> str:
    """The address below which ``/v1/...`` lies; people give it with and without the ``/v1``."""
    return url.strip().rstrip("/").removesuffix("/v1").rstrip("/")


def _section(name: str) -> KeyPath:
    return ("other_engines", name) if name else ("engine",)


def _engine_problems(at: KeyPath, engine: EngineConfig) -> list[tuple[KeyPath, str]]:
    if engine.kind != ATTACHED_KIND:
        return [((*at, key), _ONLY_HERE) for key in _ONLY_ATTACHED if getattr(engine, key)]
    found = [((*at, key), _NOTHING_STARTED.format(key)) for key in _ONLY_LAUNCHED if getattr(engine, key)]
    if engine.url is None:
        words = "needs `url`, the running server without speculation: add `url: http://...`"
        return [*found, (at, words)]
    return found + _url_problem((*at, "url"), engine.url)


def _arm_problems(at: KeyPath, entry: ArmConfig, kinds: set[str]) -> list[tuple[KeyPath, str]]:
    if ATTACHED_KIND not in kinds:
        return [((*at, key), _ONLY_HERE) for key in ("url", "model") if getattr(entry, key)]
    found: list[tuple[KeyPath, str]] = []
    if kinds == {ATTACHED_KIND}:
        found += [
            ((*at, key), _NOTHING_STARTED.format(key)) for key in ("args", "env") if getattr(entry, key)
        ]
    if entry.url is None:
        return [*found, (at, "needs `url`, the running server of this arm: add `url: http://...`")]
    return found + _url_problem((*at, "url"), entry.url)


def _url_problem(key: KeyPath, url: str) -> list[tuple[KeyPath, str]]:
    try:
        parts = urlsplit(url.strip())
        parts.port  # noqa: B018 - it raises for a port that is no number
    except ValueError as error:
        return [(key, f"is not an address ({error}): write http://HOST:PORT or https://HOST")]
    if parts.scheme not in _DEFAULT_PORT or not parts.hostname:
        return [(key, f"{url!r} is not an http(s) address: write http://HOST:PORT or https://HOST")]
    if "@" in parts.netloc:
        return [(key, "must not hold a password: use `engine.headers` with a variable of the environment")]
    if parts.query or parts.fragment:
        return [(key, "must end before any `?` or `#`: give the server's base address")]
    return []


def _shared(config: Config) -> list[tuple[KeyPath, str]]:
    """Arms that are one server: their comparison would say nothing about speculation."""
    seen: dict[tuple[str, int, str], str] = {}
    found: list[tuple[KeyPath, str]] = []
    for arm in expand_arms(config):
        engine = config.engine_named(arm.engine)
        if engine.kind != ATTACHED_KIND or arm.url is None or engine.allow_same:
            continue
        other = seen.setdefault(place(arm.url), arm.id)
        if other != arm.id:
            key: KeyPath = ("arms", arm.entry) if arm.entry is not None else _section(arm.engine)
            whose = "the baseline's" if other == BASELINE else f"that of the arm {other}"
            found.append(
                (
                    (*key, "url"),
                    f"the server of the arm {arm.id} is {whose}: give each arm its own server, or set "
                    "engine.allow_same to compare a server with itself",
                )
            )
    return found


def same_server(arm: Arm, arms: Sequence[Arm]) -> bool:
    """Whether an arm is attached to the server of its baseline, which ``engine.allow_same`` permits."""
    baseline = next((a for a in arms if a.is_baseline and a.engine == arm.engine), None)
    if arm.is_baseline or baseline is None or arm.url is None or baseline.url is None:
        return False
    return (place(arm.url), arm.served_model) == (place(baseline.url), baseline.served_model)
