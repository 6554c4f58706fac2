"""A server that is out of reach is noticed within seconds, and what was fetched before is still used."""

import socket
import sys
import threading
import time
from types import ModuleType
from urllib.parse import urlsplit

import pytest

from ldrf.cli import reaching
from ldrf.cli.models import open_model
from ldrf.cli.reaching import reachable, without_retries
from ldrf.cli.vision import import_vision
from ldrf.errors import LdrfError


def refuse(*_, **__):
    raise OSError("no network")


def test_a_server_that_answers_is_reachable_and_one_that_does_not_is_not(monkeypatch):
    monkeypatch.delenv("HTTPS_PROXY", raising=False)
    monkeypatch.delenv("https_proxy", raising=False)
    with socket.create_server(("127.0.0.1", 0)) as server:
        monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{server.getsockname()[1]}")
        assert reachable("nowhere.invalid")
    assert not reachable("nowhere.invalid", 2.0)


def test_a_name_that_is_looked_up_for_ever_is_given_up(monkeypatch):
    over = threading.Event()

    def wait(*_):
        over.wait(5)
        raise OSError("no such name")

    monkeypatch.setattr(socket, "create_connection", wait)
    start = time.perf_counter()
    assert not reachable("slow.invalid", 0.1)
    assert time.perf_counter() - start < 2
    over.set()


def test_the_hub_is_offline_within_and_as_before_afterwards(monkeypatch):
    constants = ModuleType("constants")
    constants.HF_HUB_OFFLINE = False  # pyright: ignore[reportAttributeAccessIssue]
    monkeypatch.setitem(sys.modules, "huggingface_hub.constants", constants)
    monkeypatch.setattr(reaching, "reachable", lambda host: False)
    before = socket.getdefaulttimeout()
    with without_retries("https://hub.invalid"):
        assert vars(constants)["HF_HUB_OFFLINE"] is True and socket.getdefaulttimeout() == reaching.PATIENCE
    assert vars(constants)["HF_HUB_OFFLINE"] is False and socket.getdefaulttimeout() == before


def test_the_server_that_is_asked_is_the_one_that_the_library_names(monkeypatch, tmp_path):
    from huggingface_hub import constants

    asked = []
    monkeypatch.setattr(reaching, "reachable", lambda host: asked.append(host))
    monkeypatch.setattr(constants, "ENDPOINT", "https://hub.example:8000")
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    for name in ("timm:resnet10t", "torchvision:squeezenet1_1"):
        with pytest.raises(LdrfError, match="could not make"):
            open_model(name)
    library = import_vision("torchvision")
    weights = library.models.get_model_weights("squeezenet1_1")["DEFAULT"]
    assert asked == ["hub.example", urlsplit(weights.url).hostname]


@pytest.mark.parametrize("name", ["timm:resnet10t", "torchvision:squeezenet1_1"])
def test_weights_that_cannot_be_fetched_are_told_soon_in_one_sentence(name, monkeypatch, tmp_path):
    monkeypatch.setattr(socket, "create_connection", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    start = time.perf_counter()
    with pytest.raises(LdrfError, match=r"could not make .* add --weights FILE, or --weights random for a trial\.$"):
        open_model(name)
    assert time.perf_counter() - start < 10
