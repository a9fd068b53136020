"""Ports of the loopback address: a free one, and who listens on one."""

from __future__ import annotations

import random
import socket
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import psutil

HOST: Final = "127.0.0.1"
_LOWEST: Final = 18_000
_TRIES: Final = 64


def is_free(port: int) -> bool:
    """Whether a server could listen on the port of 127.0.0.1 now (connections in TIME_WAIT do not count)."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def free_port() -> int:
    """A port that nobody listens on.

    It is taken from below the kernel's range for outgoing connections when possible: an engine
    imports for seconds before it binds, and an outgoing connection could take the port meanwhile.
    """
    highest = _first_outgoing_port() - 1
    if highest > _LOWEST:
        for port in random.sample(range(_LOWEST, highest), min(_TRIES, highest - _LOWEST)):
            if is_free(port):
                return port
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind((HOST, 0))
        port = probe.getsockname()[1]
    return int(port)


def listener_pids(port: int, candidates: Iterable[int] | None = None) -> frozenset[int]:
    """Visible processes that listen on the TCP port, of the candidates or of all.

    Sockets of other users are often not visible: an empty set does not mean that nobody listens.
    """
    if candidates is None:
        candidates = psutil.pids()
    found = set()
    for pid in candidates:
        try:
            connections = psutil.Process(pid).net_connections(kind="tcp")
        except (psutil.Error, OSError):
            continue
        if any(c.status == psutil.CONN_LISTEN and c.laddr.port == port for c in connections):
            found.add(pid)
    return frozenset(found)


def listener_owned_by(port: int, pids: Iterable[int]) -> bool:
    """Whether one of the processes listens on the TCP port."""
    return bool(listener_pids(port, pids))


def _first_outgoing_port() -> int:
    try:
        text = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text(encoding="ascii")
        return int(text.split()[0])
    except (OSError, ValueError, IndexError):
        return 0
