"""PRACTISE, written from its paper: G.-H. Wang and J. Wu, Practical Network Acceleration with Tiny Sets, CVPR 2023.

Whole residual blocks go. For each block that can go, adaptors (1 x 1 convolutions, the identity at first) are put
behind the convolutions before the gap and before those behind it. Only these are trained, on the few images, so that
the features before the global pool are those of the dense network. The distance that is left is the block's
recoverability. Blocks go in the order of recoverability over the share of the latency that they save, until the
latency is reached. Then the whole network is trained on the same distance (feature mimicking).

Built on ldrf's branches that can be left out, with zero in place of the mean: a block without its branch is its
shortcut. Adaptors serve the choice alone. BatchNorms keep their statistics, as the images are few. Where the paper's
rate of 0.02 does not lead nearer, as in MobileNetV2, a smaller one is taken.
"""

import copy
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn

import ldrf
from ldrf.calibration.network import Network, read_network
from ldrf.deployment.deployed import Deployed, deploy
from ldrf.errors import OutOfReach
from ldrf.runtime.device import forward_precision
from ldrf.tracing.layer import Layer
from ldrf.tracing.operations import operation
from ldrf.tracing.trace import Trace
from ldrf.units.branches import Branch
from ldrf.units.left_out import constant_tensors, leave_out
from ldrf.units.module_surgery import write_tensors

RATES, SMALLER = 5, 4.0  # rates that are tried where the paper's does not lead nearer, each so much smaller
LOST = 3.0  # times the first distance from which on a rate is given up
POOLS = {"aten.adaptive_avg_pool2d", "aten.mean"}


@dataclass(frozen=True)
class Settings:
    """SGD as in the paper; the steps of the adaptors and the passes of the last training are free."""

    rate: float = 0.02
    momentum: float = 0.9
    decay: float = 1e-4
    batch: int = 64
    adaptor_steps: int = 1000
    epochs: int = 2000
    precision: str = "float32"
    seed: int = 0


@dataclass(frozen=True)
class Practised:
    """The trained network without blocks, their scores in the order in which they would go, and the measured ratio."""

    model: nn.Module
    dropped: tuple[str, ...]
    scores: dict[str, float] = field(default_factory=dict)
    ratio: float = 1.0


@dataclass(frozen=True)
class Goal:
    """The images, the features that the dense network has of them, and the module that gives such features."""

    images: Tensor
    wanted: Tensor
    module: str | None

    @classmethod
    @torch.no_grad()
    def of(cls, network: Network, images: Tensor, settings: Settings) -> "Goal":
        module = feature_module(network.trace)
        parts = [features(network.model, module, part, settings).float() for part in images.split(settings.batch)]
        return cls(images, torch.cat(parts), module)

    def distance(self, slim: nn.Module, rows: Tensor, settings: Settings) -> Tensor:
        """Mean squared distance of the slim network's features of some images."""
        return F.mse_loss(features(slim, self.module, self.images[rows], settings).float(), self.wanted[rows])


def practise(
    model: nn.Module, images: Tensor, ratio: float, deployment: ldrf.Deployment, settings: Settings | None = None
) -> Practised:
    """Drop blocks until the network is ``ratio`` times as fast as measured, then mimic the dense features."""
    settings = settings or Settings()
    model = copy.deepcopy(model).eval()
    network = read_network(model, images.split(settings.batch), (), ldrf.PruneConfig(depth=True))
    deployed = deploy(network.model, network.example, deployment)
    goal = Goal.of(network, images, settings)
    scores = {
        branch.name: recoverability(network, branch, goal, settings) / saved_share(network, deployed, (branch,))
        for branch in network.branches
    }
    by_score = sorted(network.branches, key=lambda branch: scores[branch.name])
    gone, reached = enough_blocks(network, deployed, by_score, ratio)
    slim = without_blocks(network.model, gone)
    mimic(slim, slim.parameters(), goal, settings, settings.epochs * -(-len(images) // settings.batch))
    return Practised(slim.eval(), tuple(b.name for b in gone), {b.name: scores[b.name] for b in by_score}, reached)


def without_blocks(model: nn.Module, branches: Iterable[Branch]) -> nn.Module:
    """A copy in eval mode whose blocks of these branches are their shortcuts."""
    copied = copy.deepcopy(model).eval()
    for branch in branches:
        leave_out(copied, branch.stand_ins)
        tensors = constant_tensors(branch.stand_ins, torch.zeros_like(branch.constant.values), copied)
        write_tensors(copied, tensors)
        for name in tensors:
            copied.get_parameter(name).requires_grad_(False)  # a shortcut adds nothing
    return copied


def saved_share(network: Network, deployed: Deployed, branches: Sequence[Branch]) -> float:
    """The share of the dense time that goes with these branches, at least a little."""
    return max(1 - 1 / timed_without(network, deployed, branches), 1e-3)


def timed_without(network: Network, deployed: Deployed, branches: Sequence[Branch]) -> float:
    """Dense time / time without these branches, on the clock."""
    inside = {unit for branch in branches for unit in branch.units}
    widths = {unit.name: 0 if unit.name in inside else unit.width for unit in network.units}
    return deployed.time_cut(network.units, widths, network.branches).ratio()


def enough_blocks(
    network: Network, deployed: Deployed, by_score: Sequence[Branch], ratio: float
) -> tuple[list[Branch], float]:
    """The first blocks without which the network is fast enough, and the ratio that was measured."""
    reached = 1.0
    for count in range(1, len(by_score) + 1):
        reached = timed_without(network, deployed, by_score[:count])
        if reached >= ratio:
            return list(by_score[:count]), reached
    raise OutOfReach(f"A latency {ratio:g} times lower is out of reach: without any of its blocks it is {reached:.2f}.")


def recoverability(network: Network, branch: Branch, goal: Goal, settings: Settings) -> float:
    """How far the features stay from the dense ones when only adaptors around the gap are trained."""
    slim = without_blocks(network.model, (branch,)).requires_grad_(False)
    before, behind = layers_around(network.trace, branch)
    with adaptors(slim, before, behind) as added:
        mimic(slim, added.parameters(), goal, settings, settings.adaptor_steps)
        return feature_distance(slim, goal, settings)


@contextmanager
def adaptors(model: nn.Module, before: Sequence[Layer], behind: Sequence[Layer]) -> Iterator[nn.ModuleList]:
    """Within, 1 x 1 convolutions work on what some layers give and on what others read."""
    added, handles = nn.ModuleList(), []
    for layer in before:
        added.append(_identity(layer.outputs, model))
        adapt = lambda _module, _inputs, output, own=added[-1]: own(output)  # noqa: E731
        handles.append(model.get_submodule(layer.name).register_forward_hook(adapt))
    for layer in behind:
        added.append(_identity(layer.inputs, model))
        adapt = lambda _module, inputs, own=added[-1]: (own(inputs[0]), *inputs[1:])  # noqa: E731
        handles.append(model.get_submodule(layer.name).register_forward_pre_hook(adapt))
    try:
        yield added
    finally:
        for handle in handles:
            handle.remove()


def _identity(channels: int, like: nn.Module) -> nn.Conv2d:
    adaptor = nn.Conv2d(channels, channels, 1, bias=False)
    nn.init.dirac_(adaptor.weight)
    return adaptor.to(next(like.parameters()).device)


def layers_around(trace: Trace, branch: Branch) -> tuple[list[Layer], list[Layer]]:
    """Convolutions whose outputs are the block's input with no layer between, and those that read what it gives."""
    end = trace.node(branch.end)
    total = next(user for user in end.users if user.name not in branch.calls)
    while operation(total) != "aten.add":
        total = next(iter(total.users))
    shortcut = [n for n in total.all_input_nodes if n.name != branch.end and n.name not in branch.calls]
    before = _nearest(trace, shortcut, lambda node: node.all_input_nodes)
    behind = _nearest(trace, list(total.users), lambda node: list(node.users))
    return [la for la in before if la.kernel], [la for la in behind if la.kernel and la.groups == 1]


def _nearest(trace: Trace, start: list[fx.Node], following: Callable[[fx.Node], list[fx.Node]]) -> list[Layer]:
    """The layers that are reached from some nodes without passing another."""
    found, seen, queue = [], set[str](), list(start)
    while queue:
        node = queue.pop()
        if node.name in seen:
            continue
        seen.add(node.name)
        if node.name in trace.layer_at:
            found.append(trace.layer_at[node.name])
        else:
            queue += following(node)
    return found


def feature_module(trace: Trace) -> str | None:
    """The module that gives the features before the last pool; None where no module ends there."""
    pools = [node for node in trace.nodes if operation(node) in POOLS]
    if not pools:
        return None
    inside = {path for path, _ in (pools[-1].meta.get("nn_module_stack") or {}).values()}
    made = [path for path, _ in (pools[-1].all_input_nodes[0].meta.get("nn_module_stack") or {}).values()]
    return next((path for path in made if path and path not in inside and "@" not in path), None)


def features(model: nn.Module, module: str | None, images: Tensor, settings: Settings) -> Tensor:
    """What the named module gives, or the model itself."""
    with forward_precision(images.device, settings.precision):
        if module is None:
            return model(images)
        kept: list[Any] = []
        handle = model.get_submodule(module).register_forward_hook(lambda _m, _x, output: kept.append(output))
        try:
            model(images)
        finally:
            handle.remove()
        return kept[-1]


@torch.no_grad()
def feature_distance(slim: nn.Module, goal: Goal, settings: Settings) -> float:
    """Mean squared distance of the features from the dense ones over all images."""
    parts = torch.arange(len(goal.images)).split(settings.batch)
    return sum(float(goal.distance(slim, rows, settings)) * len(rows) for rows in parts) / len(goal.images)


def mimic(slim: nn.Module, parameters: Iterable[nn.Parameter], goal: Goal, settings: Settings, steps: int) -> None:
    """Train some parameters on the squared distance of the features, at the first rate at which it falls."""
    moving = [p for p in parameters if p.requires_grad and p.numel()]
    start = [p.detach().clone() for p in moving]
    for smaller in range(RATES):
        if _descended(slim, moving, goal, replace(settings, rate=settings.rate / SMALLER**smaller), steps):
            return
        with torch.no_grad():
            for parameter, before in zip(moving, start, strict=True):
                parameter.copy_(before)


def _descended(slim: nn.Module, moving: list[nn.Parameter], goal: Goal, settings: Settings, steps: int) -> bool:
    """Whether such steps led nearer; the rate falls tenfold at 40 and 80 percent of them."""
    optimiser = torch.optim.SGD(moving, settings.rate, settings.momentum, weight_decay=settings.decay)
    schedule = torch.optim.lr_scheduler.MultiStepLR(optimiser, [int(0.4 * steps), int(0.8 * steps)])
    generator, losses = torch.Generator().manual_seed(settings.seed), list[float]()
    rows = torch.empty(0, dtype=torch.long)
    for _ in range(steps):
        if not len(rows):
            rows = torch.randperm(len(goal.images), generator=generator)
        part, rows = rows[: settings.batch], rows[settings.batch :]
        optimiser.zero_grad(set_to_none=True)
        loss = goal.distance(slim, part, settings)
        losses.append(float(loss.detach()))
        if not losses[-1] < LOST * losses[0] + 1e-12:  # also where it is not a number
            return False
        loss.backward()
        optimiser.step()
        schedule.step()
    return feature_distance(slim, goal, settings) <= losses[0]
