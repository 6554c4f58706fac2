"""Images that commands run a model on: an example of its inputs, and labelled test images."""

from pathlib import Path

from torch import nn

from ldrf.cli.arguments.base import is_result
from ldrf.data.sources import Batches, open_data
from ldrf.errors import LdrfError
from ldrf.files.record import read_record
from ldrf.inputs import Inputs, made_up_inputs, read_inputs
from ldrf.result import PruneResult

TIMED_IMAGES = 16


def open_example(name: str, model: nn.Module, data: str | None, rows: int) -> Inputs:
    """``rows`` inputs for the model called ``name``: from the data if it is named, else random ones."""
    if data is not None:
        return read_inputs(model, next(iter(open_data(data, "train").take(rows))))
    described = read_record(Path(name)).get("inputs") if is_result(name) else None
    if not described:
        raise LdrfError(f"'{name}' does not say what inputs it takes: add --data, such as --data sample.")
    return made_up_inputs(described, rows)


def timed_example(model: nn.Module, batches: Batches, result: PruneResult) -> Inputs:
    """Images that both networks are timed on; a whole batch where the model fixes its size."""
    if result.example.fixed:
        return result.example
    return read_inputs(model, next(iter(batches))).first(TIMED_IMAGES)


def open_test(data: str, images: int | None) -> Batches | None:
    """Labelled test images if the data has them and ``images`` is not 0."""
    if images == 0:
        return None
    try:
        test = open_data(data, "test")
    except LdrfError:
        if images is not None:
            raise
        return None
    return test.take(images) if test.labelled else None
