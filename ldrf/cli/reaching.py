"""Weights that a library fetches from the network: where that is out of reach, it is told within seconds."""

import os
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

PATIENCE = 4.0  # seconds in which a server must answer


def reachable(host: str, patience: float = PATIENCE) -> bool:
    """Whether a server takes a connection; behind a proxy, whether that does."""
    proxy = urlsplit(os.environ.get("HTTPS_PROXY") or os.environ.get("https_proxy") or "")
    place = (proxy.hostname, proxy.port or 80) if proxy.hostname else (host, 443)
    answered = threading.Event()

    def ask() -> None:
        try:
            socket.create_connection(place, patience).close()
        except OSError:
            return
        answered.set()

    thread = threading.Thread(target=ask, daemon=True)  # looking up a name has no time limit of its own
    thread.start()
    thread.join(patience)
    return answered.is_set()


@contextmanager
def without_retries(address: str) -> Iterator[None]:
    """Within, a library that fetches from an address out of reach looks only at what it has fetched before."""
    if reachable(urlsplit(address).hostname or ""):
        yield
        return
    constants = sys.modules.get("huggingface_hub.constants")
    before, timeout = getattr(constants, "HF_HUB_OFFLINE", None), socket.getdefaulttimeout()
    socket.setdefaulttimeout(PATIENCE)
    if constants is not None:
        vars(constants)["HF_HUB_OFFLINE"] = True
    try:
        yield
    finally:
        socket.setdefaulttimeout(timeout)
        if constants is not None:
            vars(constants)["HF_HUB_OFFLINE"] = before
