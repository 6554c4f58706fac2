"""Stands in for ``ldrf.prune`` and ``ldrf.save``, so that tests see what the command line passes on."""

from dataclasses import dataclass

from torch import nn

import ldrf
from ldrf.inputs import Inputs


@dataclass
class FakeResult:
    model: nn.Module
    macs = (300, 100)
    latency = None
    example = Inputs((), {})
    parameters = (60, 20)
    widths, full_widths = {"0": 4}, {"0": 8}

    def as_dict(self):
        return {"speedup": 3.0, "widths": {"0": 4}}

    def __str__(self):
        return "the result's own table"


class FakeCore:
    """Stands in for the library, and notes how it was called."""

    def __init__(self, monkeypatch) -> None:
        self.pruned: list[dict] = []
        self.saved: list[dict] = []
        monkeypatch.setattr(ldrf, "prune", self.prune)
        monkeypatch.setattr(ldrf, "save", self.save)
        monkeypatch.setattr("ldrf.cli.prune.write_report", lambda folders: folders[0] / "report.html")
        monkeypatch.setattr("ldrf.cli.prune.latency_ratio", lambda *_: {"dense": 2.0, "slim": 1.0})

    def prune(self, model, batches, **named):
        print("chatter on stdout")
        self.pruned.append({"images": sum(len(images) for images, _ in batches), **named})
        return FakeResult(model)

    def save(self, result, folder, **named):
        self.saved.append({"folder": folder, **named})


def prune_args(plugin: str, *more: str) -> list[str]:
    """The command line of a small run with the network and the data of a file."""
    return ["prune", f"{plugin}:net", "--data", f"{plugin}:data", "--out", "out", *more]
