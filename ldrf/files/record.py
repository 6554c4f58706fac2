"""``ldrf.json``, the record of a result folder: sealed when written, and checked before any of it is believed.

The seal is a SHA-256 of the rest of the record, which holds one of the tensors in turn: a changed width, number of
heads or figure is noticed. It guards against damage; whoever forges a record can forge its seal.
"""

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ldrf.errors import LdrfError
from ldrf.files.result_folders import RECORD
from ldrf.files.strict_json import plain, read_json

FORMAT = 2
UNSEALED = 1  # the format before there were seals; it is still read


def sealed(record: Mapping[str, Any]) -> dict[str, Any]:
    """The record in the present format, as JSON holds it, with its seal."""
    rest = {key: value for key, value in plain(record).items() if key not in ("format", "seal")}
    written = {"format": FORMAT, **rest}
    return {**written, "seal": _seal(written)}


def _seal(record: Mapping[str, Any]) -> str:
    rest = {key: value for key, value in record.items() if key != "seal"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def read_record(folder: str | Path) -> dict[str, Any]:
    """The checked contents of a result folder's ``ldrf.json``."""
    path = Path(folder).expanduser() / RECORD
    try:
        record = read_json(path)
    except FileNotFoundError:
        raise LdrfError(f"'{folder}' is not a result folder: it has no {RECORD}.") from None
    except (ValueError, OSError) as problem:
        raise LdrfError(f"'{path}' is damaged: {problem}.") from problem
    if not isinstance(record, dict) or not isinstance(record.get("shapes"), dict):
        raise LdrfError(f"'{path}' is damaged: it does not describe an ldrf result.")
    version = record.get("format")
    if type(version) is not int or version not in (UNSEALED, FORMAT):
        raise LdrfError(
            f"'{path}' has format {repr(version)[:40]}, but this ldrf reads formats {UNSEALED} and {FORMAT}: "
            "use the version that wrote it."
        )
    if (version == FORMAT or "seal" in record) and record.get("seal") != _seal(record):
        raise LdrfError(f"'{path}' is damaged: its contents do not match its seal; save the result again.")
    for field, (holds, wanted) in FIELDS.items():
        if field in record and not holds(record[field]):
            raise LdrfError(f"'{path}' is damaged: its '{field}' must be {wanted}.")
    return record


def _is_table(holds: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, dict) and all(map(holds, value.values()))


def _is_count(value: Any) -> bool:
    return type(value) is int and value > 0


def _is_shape(value: Any) -> bool:
    return isinstance(value, list) and all(type(size) is int and size >= 0 for size in value)


def _is_source(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(value.get(k), str | None) for k in ("model", "weights"))


def _is_inputs(value: Any) -> bool:
    """Whether ``value`` is what :meth:`ldrf.inputs.Inputs.described` says."""
    if not isinstance(value, dict) or not isinstance(value.get("args"), list):
        return False
    parts = [*value["args"], *value["kwargs"].values()] if isinstance(value.get("kwargs"), dict) else [None]
    return all(
        isinstance(p, dict) and (_is_shape(p.get("shape")) and isinstance(p.get("dtype"), str) or "value" in p)
        for p in parts
    )


# What each field of a record must be, where it is there: earlier versions wrote fewer.
FIELDS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "class": (lambda value: isinstance(value, str), "a name"),
    "shapes": (_is_table(_is_shape), "a list of whole numbers for each tensor"),
    "sha256": (lambda value: isinstance(value, str), "a checksum"),
    "widths": (lambda value: isinstance(value, dict), "a number of neurons for each unit"),
    "attributes": (_is_table(_is_count), "a positive whole number for each name"),
    "metrics": (lambda value: isinstance(value, dict), "a table of figures"),
    "source": (_is_source, "a table with the names of model and weights"),
    "inputs": (_is_inputs, "shapes and dtypes of the model's arguments"),
}
