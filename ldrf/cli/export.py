"""``ldrf export``: a slim model as one file for deployment."""

from pathlib import Path

from ldrf.cli.arguments.export import Export
from ldrf.cli.images import open_example
from ldrf.cli.models import open_model
from ldrf.cli.output import Report, facts
from ldrf.errors import LdrfError
from ldrf.saving.export import Format, export, format_of

FILES: dict[Format, str] = {"onnx": "slim.onnx", "pt2": "slim.pt2", "state-dict": "slim.pt"}


def run(arguments: Export) -> Report:
    """Export, compare, write."""
    out, format = _file_and_format(arguments)
    if out.exists() and not arguments.force:
        raise LdrfError(f"'{out}' is there already: choose another --out, or add --force to replace it.")
    model = open_model(arguments.model, arguments.weights, arguments.architecture).model
    example = open_example(arguments.model, model, arguments.data, 3)
    exported = export(model, out, example=example, format=format)
    data = {
        "file": str(exported.path),
        "format": exported.format,
        "max_error": exported.error,
        "bytes": exported.bytes,
    }
    rows = {
        "file": str(exported.path),
        "format": exported.format,
        "bytes": f"{exported.bytes:,}",
        "largest difference from the model": f"{exported.error:.2g}",
    }
    return Report(data, [facts(rows)])


def _file_and_format(arguments: Export) -> tuple[Path, Format]:
    """Where to write and what, each from the other where only one is given."""
    if arguments.out is not None:
        return arguments.out, arguments.format or format_of(arguments.out)
    format: Format = arguments.format or "onnx"
    return Path(arguments.model) / FILES[format], format
