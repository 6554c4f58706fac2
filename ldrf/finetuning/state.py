"""The state of a fine-tuning run: what changes from step to step, and its file, from which a killed run goes on."""

import copy
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ldrf.algebra.muon import Muon
from ldrf.config import Optimiser
from ldrf.errors import LdrfError
from ldrf.files.checksums import state_checksum
from ldrf.files.tensor_files import read_torch
from ldrf.files.writing import replacing
from ldrf.result import Epoch
from ldrf.runtime.device import model_device
from ldrf.runtime.processes import from_first, is_first

DECAY, MOMENTUM = 1e-4, 0.9  # of plain gradient steps, as the paper has them (Sec. "VGG-9 on CIFAR-10")


@dataclass
class TuningRun:
    """The model being trained, the running mean of its weights, the best weights so far, and the curve."""

    student: nn.Module
    average: nn.Module
    optimiser: torch.optim.Optimizer
    best: dict[str, Tensor]
    began: float = 0.0
    best_score: float = 0.0
    best_distance: float = 0.0
    best_epoch: int = 0
    trained: int = 0
    judged: int = 0
    epochs: list[Epoch] = field(default_factory=list)

    @classmethod
    def of(
        cls, start: nn.Module, rate: float, device: torch.device | None = None, optimiser: Optimiser = "muon"
    ) -> "TuningRun":
        """A run that begins with the weights of ``start``, trained in float32 on ``device`` or where they are."""
        student = copy.deepcopy(start).float().to(device or model_device(start)).requires_grad_(True)
        average = copy.deepcopy(student).requires_grad_(False).eval()
        moved = OPTIMISERS[optimiser](list(student.parameters()), rate)
        return cls(student, average, moved, copied(start.state_dict()))

    def set_rate(self, rate: float) -> None:
        """Let every tensor move at this rate, times its own size where the optimiser goes by that."""
        for group in self.optimiser.param_groups:
            group["lr"] = rate * group["size"]

    @property
    def device(self) -> torch.device:
        return model_device(self.student)

    @torch.no_grad()
    def follow(self, decay: float) -> None:
        """Move the mean of the weights a step towards the present ones."""
        mine = self.student.state_dict()
        for name, mean in self.average.state_dict().items():
            if mean.is_floating_point():
                mean.lerp_(mine[name], 1 - decay)
            else:
                mean.copy_(mine[name])

    def begin(self, score: float, distance: float, judged: int) -> None:
        """Note what the start is worth: the score to beat, or the distance."""
        self.began, self.judged = score, judged
        self.best_score, self.best_distance = score, distance

    def add(self, epoch: Epoch, by_score: bool) -> None:
        """Note an epoch, and its weights if they are the best so far.

        Without labels the distance decides. Some hundred images tell it far more exactly than a count of equal answers,
        and equal answers on images that the dense network was trained on say little of others.
        """
        self.epochs.append(epoch)
        higher = (epoch.score, -epoch.distance) > (self.best_score, -self.best_distance)
        if higher if by_score else epoch.distance < self.best_distance:
            self.best_score, self.best_distance, self.best_epoch = epoch.score, epoch.distance, epoch.epoch
            self.best = copied(self.average.state_dict())


def _muon(parameters: list[nn.Parameter], rate: float) -> torch.optim.Optimizer:
    return Muon([{"params": [p], "size": _size(p)} for p in parameters], lr=rate)


def _sgd(parameters: list[nn.Parameter], rate: float) -> torch.optim.Optimizer:
    """Matrices and kernels decay, biases and norms do not."""
    groups = [{"params": [p], "size": 1.0, "weight_decay": DECAY if p.ndim > 1 else 0.0} for p in parameters]
    return torch.optim.SGD(groups, lr=rate, momentum=MOMENTUM)


OPTIMISERS: dict[Optimiser, Callable[[list[nn.Parameter], float], torch.optim.Optimizer]] = {
    "muon": _muon,
    "sgd": _sgd,
}


def _size(tensor: Tensor) -> float:
    """The size of a tensor's entries, at least a hundredth, so that a bias of zeros moves too."""
    return max(float(tensor.detach().square().mean().sqrt()), 0.01)


def copied(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.detach().clone() for name, tensor in state.items()}


NUMBERS = ("began", "best_score", "best_distance", "best_epoch", "trained", "judged")


def keep(run: TuningRun, path: str | Path | None, config: Any, start: nn.Module) -> None:
    """Write the state after an epoch, all or nothing; of several processes the first does."""
    if path is None or not is_first():
        return
    path = Path(path).expanduser()
    path.parent.mkdir(parents=True, exist_ok=True)
    state = {
        "config": asdict(config),
        "start": state_checksum(start.state_dict()),
        "student": run.student.state_dict(),
        "average": run.average.state_dict(),
        "optimiser": run.optimiser.state_dict(),
        "best": run.best,
        "epochs": [asdict(e) for e in run.epochs],
        **{name: getattr(run, name) for name in NUMBERS},
    }
    with replacing(path) as beside:
        torch.save(state, beside)


def resumed(run: TuningRun, path: str | Path | None, config: Any, start: nn.Module) -> bool:
    """Bring ``run`` to where the file says it was; False where there is no such file."""
    state = None if path is None else from_first(lambda: _stored(Path(path).expanduser(), config, start))
    if state is None:
        return False
    try:
        _take_over(run, state)
    except Exception as problem:  # torch checks names and shapes, and fails in its own ways
        raise LdrfError(f"'{path}' is a damaged state of a fine-tuning run: delete it to start anew.") from problem
    return True


def _stored(path: Path, config: Any, start: nn.Module) -> dict[str, Any] | None:
    """The state in the file, if there is one: that of a run with these settings on this slim model."""
    if not path.exists():
        return None
    try:
        state = read_torch(path, torch.device("cpu"), checked=True)
        settings = asdict(type(config)()) | dict(state["config"])  # a setting that it lacks had its default
        origin = state["start"]
    except (ValueError, OSError, TypeError, KeyError) as problem:
        raise LdrfError(f"'{path}' is not the state of a fine-tuning run: delete it to start anew.") from problem
    if origin != state_checksum(start.state_dict()):
        raise LdrfError(f"'{path}' is the state of another slim model's run: delete it to start anew.")
    if settings != asdict(config):
        changed = sorted(name for name, value in asdict(config).items() if settings.get(name) != value)
        raise LdrfError(
            f"'{path}' was written with other settings ({', '.join(changed)}): "
            "use the same to go on, or delete it to start anew."
        )
    return state


def _take_over(run: TuningRun, state: Mapping[str, Any]) -> None:
    wanted = {name: tensor.shape for name, tensor in run.best.items()}
    if {name: tensor.shape for name, tensor in state["best"].items()} != wanted:
        raise ValueError("the best weights are those of another model")
    if not isinstance(state["epochs"], list):
        raise TypeError("the epochs are no list")
    run.student.load_state_dict(state["student"])
    run.average.load_state_dict(state["average"])
    run.optimiser.load_state_dict(state["optimiser"])
    run.best, run.epochs = dict(state["best"]), [Epoch(**epoch) for epoch in state["epochs"]]
    for name in NUMBERS:
        if type(state[name]) is not type(getattr(run, name)):
            raise TypeError(f"{name} is a {type(state[name]).__name__}")
        setattr(run, name, state[name])
