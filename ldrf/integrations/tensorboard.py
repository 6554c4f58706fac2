"""Events as TensorBoard curves: ``ldrf.prune(..., on_event=tensorboard("runs/tb"))``."""

import math
from pathlib import Path
from typing import Any

from ldrf.errors import LdrfError
from ldrf.events import OnEvent


def tensorboard(folder: str | Path) -> OnEvent:
    """A callback that writes errors and widths unit by unit, and the curve of fine-tuning, into ``folder``."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as problem:
        raise LdrfError("TensorBoard curves need tensorboard: pip install 'ldrf[tensorboard]'.") from problem
    writer = SummaryWriter(str(folder))

    def on_event(event: str, data: dict[str, Any]) -> None:
        for name, (value, step) in _scalars(event, data).items():
            if math.isfinite(value):
                writer.add_scalar(name, value, step)
        if event == "planned":
            full = data["full_widths"]
            lines = [f"| {name} | {width} of {full[name]} |" for name, width in data["widths"].items()]
            writer.add_text("prune/widths", "\n".join(["| unit | neurons kept |", "|---|---|", *lines]))
        writer.flush()

    return on_event


def _scalars(event: str, data: dict[str, Any]) -> dict[str, tuple[float, int]]:
    """By name of the curve: value and step."""
    if event == "unit":
        step = data["index"]
        return {
            "prune/error after cutting": (data["cut_error"], step),
            "prune/error after reconstruction": (data["error"], step),
            "prune/share of neurons kept": (data["width"] / data["full"], step),
        }
    if event == "epoch":
        return {f"finetune/{name}": (data[name], data["epoch"]) for name in ("loss", "score", "distance", "rate")}
    if event == "done" and "speedup" in data:
        return {"prune/speedup": (data["speedup"], 0)}
    return {}
