"""The copy that is traced: it shares its weights, forgets the batch it saw, and gives nothing that cannot be traced."""

# pyright: reportAttributeAccessIssue=false, reportArgumentType=false

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from networks import images
from torch import Tensor, nn

import ldrf
from ldrf.inputs import Inputs
from ldrf.tracing.export import working_copy
from ldrf.tracing.throwaway import plain_outputs, throwaway_copy


class Cache:
    """Keys and values of words seen before, as transformers' models give them: no tensor, and no known container."""

    def __init__(self, keys: Tensor) -> None:
        self.keys = keys


class Caching(nn.Module):
    """A model that gives a cache beside its outputs unless its config says no, and remembers how many rows it saw."""

    def __init__(self, obeys: bool) -> None:
        super().__init__()
        self.config, self.obeys, self.rows = SimpleNamespace(use_cache=True), obeys, 0
        self.one, self.two = nn.Linear(6, 12), nn.Linear(12, 3)

    def forward(self, x: Tensor) -> dict[str, Any]:
        self.rows = x.shape[0]
        y = torch.relu(self.one(x))
        cached = self.config.use_cache or not self.obeys
        return {"logits": self.two(y), **({"cache": Cache(y)} if cached else {}), "doubled": 2 * x}


def test_the_copy_shares_parameters_and_ran_on_one_row():
    model = Caching(True)
    copied = throwaway_copy(model, Inputs((images(4, shape=(6,)),), {}))
    assert copied.rows == 1 and model.rows == 0 and copied.one.weight is model.one.weight
    assert not copied.config.use_cache and model.config.use_cache


def test_a_model_that_cannot_take_one_row_is_copied_as_it_is():
    class Pairs(Caching):
        def forward(self, x: Tensor) -> dict[str, Any]:
            return super().forward(x.view(-1, 2, 6)[:, 0])

    assert throwaway_copy(Pairs(True), Inputs((images(4, shape=(6,)),), {})).rows == 0


def test_outputs_are_plain_only_within():
    model = Caching(False)
    with plain_outputs(model):
        assert model(images(2, shape=(6,)))["cache"] is None
    assert isinstance(model(images(2, shape=(6,)))["cache"], Cache) and "forward" not in vars(model)


@pytest.mark.slow
@pytest.mark.parametrize("obeys", [True, False])
def test_a_model_that_gives_a_cache_is_pruned_and_still_gives_it(obeys: bool):
    model = Caching(obeys)
    assert not working_copy(model).config.use_cache
    config = ldrf.PruneConfig(steps=2, joint_steps=2)
    result = ldrf.prune(model, [images(24, shape=(6,))], widths={"one": 7}, config=config)
    assert isinstance(result.model(images(2, shape=(6,)))["cache"], Cache) and result.model.config.use_cache
