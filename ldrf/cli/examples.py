"""Inputs to try a model on: from the data named, or of the shapes that a result folder remembers."""

from pathlib import Path

from torch import nn

from ldrf.cli.models import is_result
from ldrf.data.sources import open_data
from ldrf.errors import LdrfError
from ldrf.files.record import read_record
from ldrf.inputs import Inputs, made_up_inputs, read_inputs


def open_example(name: str, model: nn.Module, data: str | None, rows: int) -> Inputs:
    """``rows`` inputs for the model called ``name``: real ones where data is named, else random."""
    if data is not None:
        return read_inputs(model, next(iter(open_data(data, "train").take(rows))))
    described = read_record(Path(name)).get("inputs") if is_result(name) else None
    if not described:
        raise LdrfError(f"'{name}' does not say what inputs it takes: add --data, such as --data sample.")
    return made_up_inputs(described, rows)
