"""Weights that a library fetches from the network: where that is out of reach, it is told within seconds."""

import os
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

HOSTS = {"timm": "huggingface.co", "torchvision": "download.pytorch.org"}
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


def _host(kind: str) -> str:
    """The server of a library; that of the Hugging Face hub may be another by its own setting."""
    mirror = urlsplit(os.environ.get("HF_ENDPOINT", "")).hostname if kind == "timm" else None
    return mirror or HOSTS[kind]


@contextmanager
def without_retries(kind: str) -> Iterator[None]:
    """Within, a library whose server is out of reach looks only at what it has fetched before."""
    if reachable(_host(kind)):
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
