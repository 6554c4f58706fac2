"""A model where it will run: cut networks are timed beside the dense one, and what cannot run is told."""

import pytest
import torch
from fake_runtime import FakeClock, network_seconds
from networks import Chain, images, make
from torch import nn

from ldrf.config import Deployment
from ldrf.deployment.deployed import deploy
from ldrf.errors import LdrfError
from ldrf.inputs import Inputs
from ldrf.registry import RUNTIMES

X = Inputs((images(2),), {})


def test_a_cut_network_takes_what_its_widths_take(network):
    net, clock = network(Chain), FakeClock(step=1)
    with RUNTIMES.registered("fake", clock.runtime()):
        deployed = deploy(net.model, net.example, Deployment("fake", 3))
        timed = deployed.time_cut(net.units, {"conv1": 5, "conv2": 9})
        assert timed.seconds["dense"] == pytest.approx(deployed.dense_seconds)
    assert deployed.inputs.rows == 3
    same = Chain(5, 9).eval()
    assert timed.seconds["slim"] == pytest.approx(network_seconds(same, deployed.inputs, 1))


def test_without_a_name_the_fastest_runtime_is_taken(monkeypatch):
    fast, slow = FakeClock(), FakeClock(lambda: 3.0)
    monkeypatch.setattr("ldrf.deployment.deployed.installed_runtimes", lambda: ["slow", "fast"])
    with RUNTIMES.registered("fast", fast.runtime()), RUNTIMES.registered("slow", slow.runtime()):
        assert deploy(make(Chain), X, Deployment()).deployment.runtime == "fast"


def test_runtimes_that_cannot_take_the_model_are_left_out(monkeypatch):
    clock = FakeClock()

    def refuse(model, inputs, threads):
        raise LdrfError("bad cannot take Chain: no such operator")

    bad = type(clock.runtime())(lambda: "1", "", refuse, clock.time_pieces, clock)
    monkeypatch.setattr("ldrf.deployment.deployed.installed_runtimes", lambda: ["bad"])
    with RUNTIMES.registered("bad", bad), pytest.raises(LdrfError, match="No runtime can take Chain: bad cannot take"):
        deploy(make(Chain), X, Deployment())


def test_a_model_of_another_dtype_is_refused():
    with pytest.raises(LdrfError, match="Latency can be asked of float32 models. Got one in torch.float64"):
        deploy(make(Chain).double(), X, Deployment("torch"))


class TwoAtATime(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.reshape(2, -1)


def test_a_batch_the_model_cannot_take_is_told():
    with pytest.raises(LdrfError, match="TwoAtATime cannot take a batch of 3: shape"):
        deploy(TwoAtATime(), Inputs((torch.zeros(2, 5),), {}), Deployment("torch", 3))


def test_a_model_that_fixes_its_batch_says_which_deployment_it_takes():
    example = Inputs((torch.zeros(2, 5),), {}, fixed=True)
    with pytest.raises(LdrfError, match=r"cannot take a batch of 3 \(it takes 2: use Deployment\(batch=2\)\)"):
        deploy(TwoAtATime(), example, Deployment("torch", 3))
    assert deploy(TwoAtATime(), example, Deployment("torch", 2)).inputs.rows == 2
