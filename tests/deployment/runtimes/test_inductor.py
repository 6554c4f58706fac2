"""torch.compile is asked for a frozen network; without a compiler the runtime is not there."""

import pytest
import torch
from networks import Chain, images, make

from ldrf.deployment.runtimes import inductor
from ldrf.errors import LdrfError
from ldrf.inputs import Inputs

X = Inputs((images(2),), {})


def test_the_folded_network_is_what_is_compiled(monkeypatch):
    model, asked = make(Chain).eval(), []
    monkeypatch.setattr(torch, "compile", lambda module, **options: asked.append(options) or module)
    prepared = inductor.ENTRY.prepare(model, X, 1)
    assert asked == [{"options": {"freezing": True}, "dynamic": False}]
    assert torch.allclose(prepared.call(), model(images(2)), atol=1e-4)  # pyright: ignore[reportArgumentType]


def test_a_model_that_cannot_be_compiled_is_told(monkeypatch):
    def refused(*_, **__):
        raise RuntimeError("no kernel")

    monkeypatch.setattr(torch, "compile", lambda module, **options: refused)
    with pytest.raises(LdrfError, match="torch.compile cannot take Chain: no kernel"):
        inductor.ENTRY.prepare(make(Chain), X, 1)


def test_without_a_compiler_it_is_not_there(monkeypatch):
    monkeypatch.setattr(inductor.shutil, "which", lambda name: None)
    assert inductor.ENTRY.version() is None and "C++ compiler" in inductor.ENTRY.needs
