"""A result on disk without pickle, written all or nothing: ``model.safetensors``, ``ldrf.json`` and ``report.json``.

The last holds what only a report shows, so that ``ldrf.json`` stays short; a folder is complete without it.
"""

import copy
import hashlib
import json
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save as serialised
from torch import Tensor, nn

from ldrf.errors import LdrfError
from ldrf.files.checksums import file_checksum
from ldrf.files.record import read_record, sealed
from ldrf.files.result_folders import (
    DETAILS,
    RECORD,
    WEIGHTS,
    check_place,
    check_replaceable,
    new_folder,
    swap,
    unfinished,
)
from ldrf.files.strict_json import plain
from ldrf.files.tensor_files import HEADER, file_size, first_odd, read_safetensors
from ldrf.files.writing import disk_errors_as_sentence, write_through
from ldrf.result import FinetuneResult, PruneResult
from ldrf.runtime.processes import is_first
from ldrf.saving.fitting import check_fits, check_runs
from ldrf.saving.journal import check_belongs
from ldrf.tracing.wrappers import unwrapped
from ldrf.units.left_out import leave_out, read_stand_ins, stand_ins_of
from ldrf.units.module_surgery import write_sizes, write_tensors

CARRIED = "ldrf_record"  # the attribute of a loaded model with the record it came with


@dataclass(frozen=True)
class _Trained:
    """A model from :func:`load` that was trained since, and the record it came with."""

    model: nn.Module
    record: dict[str, Any]

    def as_dict(self) -> dict[str, Any]:
        """What still holds: all but measurements, checksums of the weights, and how the old ones were made."""
        gone = ("format", "seal", "class", "shapes", "sha256", "metrics", "source", "run")
        costs = {name: self.record["metrics"][name] for name in ("macs", "parameters")}
        return {name: value for name, value in self.record.items() if name not in gone} | costs


def save(
    result: PruneResult | FinetuneResult | nn.Module,
    folder: str | Path,
    *,
    metrics: dict[str, Any] | None = None,
    source: dict[str, Any] | None = None,
    details: dict[str, Any] | None = None,
    run: dict[str, Any] | None = None,
    force: bool = False,
) -> Path:
    """Write ``result`` into ``folder``: everything is made beside it and renamed, so no half-written folder is left.

    ``result`` may also be a model that :func:`load` gave and that was trained since; its record is written again.
    ``metrics`` adds to the recorded figures (accuracy, latency); ``source`` says which dense model this was;
    ``details`` adds to what the report shows beside spectra and error curves (feature maps); ``run`` says how to make
    it again, as ``ldrf prune`` does for ``ldrf repeat``.
    An earlier result in the same place is replaced only with ``force``, as on the command line; the unfinished run that
    led to this one is replaced, and a folder with anything else in it is refused. Of several processes only the first
    writes.
    """
    folder = Path(folder).expanduser()
    if not is_first():
        return folder
    given = _trained(result) if isinstance(result, nn.Module) else result
    if isinstance(given, _Trained):
        source = source or given.record.get("source")
    own = given.details() if isinstance(given, PruneResult) else {}
    tensors = storable_tensors(given.model)
    weights = serialised(tensors)
    record = _record(given, tensors, metrics or {}, source or {}, weights) | ({"run": run} if run else {})
    check_place(folder)
    check_belongs(folder, record)
    check_replaceable(folder, force or unfinished(folder))  # a run began there, so that was asked for already
    with disk_errors_as_sentence(f"save to '{folder}'"):
        beside = new_folder(folder)
        try:
            write_through(beside / WEIGHTS, weights)
            write_through(beside / RECORD, (json.dumps(sealed(record), indent=2) + "\n").encode())
            write_through(beside / DETAILS, (json.dumps(plain({**own, **(details or {})})) + "\n").encode())
            beside.chmod(0o755)
            swap(beside, folder)
        except BaseException:
            shutil.rmtree(beside, ignore_errors=True)
            raise
    return folder


def _trained(model: nn.Module) -> _Trained:
    inner = unwrapped(model)
    record = vars(inner).get(CARRIED)
    if record is None:
        raise LdrfError(
            f"It is not known how this {type(inner).__name__} was pruned: save the result of ldrf.prune or "
            "ldrf.finetune, or a model from ldrf.load."
        )
    return _Trained(inner, record)


def storable_tensors(model: nn.Module) -> dict[str, Tensor]:
    """The state dict as contiguous tensors of their own; names that share one tensor are stored once."""
    stored: set[int] = set()
    tensors = {}
    for name, tensor in model.state_dict().items():
        if tensor.data_ptr() in stored and tensor.numel():
            continue
        stored.add(tensor.data_ptr())
        tensors[name] = tensor.detach().cpu().clone(memory_format=torch.contiguous_format)
    return tensors


def _record(
    result: PruneResult | FinetuneResult | _Trained,
    tensors: dict[str, Tensor],
    metrics: dict[str, Any],
    source: dict[str, Any],
    weights: bytes,
) -> dict[str, Any]:
    figures = dict(result.as_dict())
    costs = {"macs": figures.pop("macs"), "parameters": figures.pop("parameters")}
    return {
        **figures,
        "class": type(result.model).__name__,
        "left_out": [asdict(stand_in) for stand_in in stand_ins_of(result.model)],
        "metrics": {**costs, **metrics},
        "source": source,
        "shapes": {name: list(t.shape) for name, t in tensors.items()},
        "sha256": hashlib.sha256(weights).hexdigest(),
    }


def load(folder: str | Path, model: nn.Module) -> nn.Module:
    """A copy of ``model``, a fresh dense one of the same class, cut to the saved widths and given the saved weights.

    It is in eval mode, whatever mode ``model`` is in: call ``train()`` before you train it. Its attribute
    ``ldrf_record`` holds what ``ldrf.json`` says, so that it can be trained and given to :func:`save` again.
    """
    folder, model = Path(folder).expanduser(), unwrapped(model)
    record = read_record(folder)
    if type(model).__name__ != record.get("class"):
        raise LdrfError(
            f"'{folder}' holds a slim {record.get('class')}. Got a {type(model).__name__} to load it into instead."
        )
    tensors = _read_weights(folder / WEIGHTS, record, model)
    copied = copy.deepcopy(model)
    _leave_out(folder, record, copied)
    state = copied.state_dict()
    check_fits(folder, tensors, state)
    write_tensors(copied, {n: t for n, t in tensors.items() if t.shape != state[n].shape})
    copied.load_state_dict({n: tensors[n] for n in tensors}, strict=False)
    write_sizes(copied, _sizes(folder, record, copied))
    check_runs(folder, record.get("inputs"), model, copied)
    vars(copied)[CARRIED] = record
    return copied.eval()


def _leave_out(folder: Path, record: dict[str, Any], model: nn.Module) -> None:
    """Put stand-ins into ``model`` where the record says that branches are left out."""
    try:
        leave_out(model, read_stand_ins(record.get("left_out") or [], model))
    except ValueError as problem:
        raise LdrfError(f"'{folder}' does not fit this model: {problem}.") from problem


def _sizes(folder: Path, record: dict[str, Any], model: nn.Module) -> dict[str, int]:
    """The recorded numbers of modules, such as counts of heads: each must be one that the model has, and no larger."""
    sizes = record.get("attributes") or {}
    for name, size in sizes.items():
        path, _, leaf = str(name).rpartition(".")
        owner = dict(model.named_modules()).get(path)
        own = vars(owner).get(leaf) if owner is not None else None
        if type(own) is not int or not 0 < size <= own:
            raise LdrfError(f"'{folder}' does not fit this model: it has no number '{name}' of {size!r} or more.")
    return sizes


def _read_weights(path: Path, record: dict[str, Any], model: nn.Module) -> dict[str, Tensor]:
    """The tensors of a result folder, read only if they are no more than ``model`` has room for and as recorded."""
    room = 8 * sum(t.numel() for t in model.state_dict().values()) + HEADER
    try:
        if file_size(path) > room:
            raise LdrfError(f"'{path}' is larger than the dense {type(model).__name__}: it does not belong to it.")
        if file_checksum(path) != record.get("sha256"):
            raise LdrfError(
                f"'{path}' is damaged: its contents do not match the checksum in {RECORD}; save the result again."
            )
        tensors = read_safetensors(path)
    except OSError:
        raise LdrfError(f"'{path.parent}' is incomplete: it has no readable {WEIGHTS}.") from None
    except ValueError as problem:
        raise LdrfError(f"'{path}' is damaged: {problem}.") from problem
    if {n: list(t.shape) for n, t in tensors.items()} != record["shapes"]:
        raise LdrfError(f"'{path}' does not hold the tensors that {RECORD} lists.")
    odd = first_odd(tensors, {name for name, _ in model.named_parameters()})
    if odd is not None:
        raise LdrfError(f"'{path}' is damaged: the numbers of tensor '{odd}' must be finite.")
    return tensors
