"""Result folders damaged or forged in every way we could think of, for tests of what reads them."""

import copy
import hashlib
import json
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ldrf.files.record import sealed

RECORD, WEIGHTS, DETAILS = "ldrf.json", "model.safetensors", "report.json"
Files = dict[str, bytes]
Mutation = Callable[[random.Random, Files], None]


class Attention(nn.Module):
    """Attention that keeps its count of heads as a number: cut it, and the number is part of what is loaded."""

    def __init__(self) -> None:
        super().__init__()
        self.patch, self.heads, self.inner = nn.Conv2d(3, 8, 4, 4), 4, 16
        self.qkv, self.out, self.head = nn.Linear(8, 48), nn.Linear(16, 8), nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patch(x).flatten(2).transpose(1, 2)
        b, n, _ = x.shape
        q, k, v = self.qkv(x).reshape(b, n, 3, self.heads, -1).permute(2, 0, 3, 1, 4).unbind(0)
        seen = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, n, self.inner)
        return self.head((x + self.out(seen)).mean(1))


# Bytes


def _any(rng: random.Random, files: Files) -> str:
    return rng.choices([RECORD, WEIGHTS, DETAILS], [4, 4, 1])[0]


def _place(rng: random.Random, content: bytes) -> int:
    return rng.randrange(len(content) + 1)


def flip(rng: random.Random, files: Files) -> None:
    name = _any(rng, files)
    content = bytearray(files[name])
    for _ in range(rng.choice([1, 1, 1, 2, 8, 64])):
        if content:
            content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    files[name] = bytes(content)


def truncate(rng: random.Random, files: Files) -> None:
    name = _any(rng, files)
    files[name] = files[name][: _place(rng, files[name])]


def insert(rng: random.Random, files: Files) -> None:
    name = _any(rng, files)
    at = _place(rng, files[name])
    files[name] = files[name][:at] + rng.randbytes(rng.choice([1, 8, 4096])) + files[name][at:]


def delete(rng: random.Random, files: Files) -> None:
    name = _any(rng, files)
    start, end = sorted((_place(rng, files[name]), _place(rng, files[name])))
    files[name] = files[name][:start] + files[name][end:]


def repeat(rng: random.Random, files: Files) -> None:
    name = _any(rng, files)
    start, end = sorted((_place(rng, files[name]), _place(rng, files[name])))
    files[name] = files[name][:end] + files[name][start:end] + files[name][end:]


def zero(rng: random.Random, files: Files) -> None:
    name = _any(rng, files)
    start, end = sorted((_place(rng, files[name]), _place(rng, files[name])))
    files[name] = files[name][:start] + bytes(end - start) + files[name][end:]


def empty(rng: random.Random, files: Files) -> None:
    files[_any(rng, files)] = rng.choice([b"", b"\n", b"{}", b"null", b"\xef\xbb\xbf{}", bytes(64)])


def swap(rng: random.Random, files: Files) -> None:
    one, other = rng.sample([RECORD, WEIGHTS, DETAILS], 2)
    files[one], files[other] = files[other], files[one]


# JSON

ODD: list[Any] = [
    *(None, True, False, 0, -1, 1, 3, 2**31, 2**63 - 1, 10**18, 10**40, -(10**30), 0.5, -0.0, 1e308, 1e-320),
    *("", "1", "../../etc/passwd", "/etc/passwd", "<script>alert(1)</script>", "\x1b[2J", "\x00", "\ud800", "a" * 5000),
    *([], {}, [1], [[]], {"": None}, {"a": 1}, [None] * 300),
    *("nets.py:main", "timm:../x", "torchvision:..", "float8", "load", "NaN"),
]


def _spots(value: Any) -> list[tuple[Any, Any]]:
    """Every place in a JSON value: the list or object, and the index or key in it."""
    found, left = [], [value]
    while left:
        item = left.pop()
        keys = list(item) if isinstance(item, dict) else list(range(len(item))) if isinstance(item, list) else []
        found += [(item, key) for key in keys]
        left += [item[key] for key in keys if isinstance(item[key], dict | list)]
    return found


def change_json(rng: random.Random, value: Any) -> None:
    """Replace, remove, rename, repeat or nest something at a random place."""
    spots = _spots(value)
    if not spots:
        return
    top = [spot for spot in spots if spot[0] is value]
    holder, key = rng.choice(top if rng.random() < 0.4 else spots)
    how = rng.choice(["replace", "replace", "nudge", "nudge", "remove", "rename", "move", "nest"])
    if how == "replace":
        holder[key] = copy.deepcopy(rng.choice(ODD))
    elif how == "nudge" and type(holder[key]) is int:
        holder[key] += rng.choice([-2, -1, 1, 2, 1000])
    elif how == "nudge" and isinstance(holder[key], str):
        holder[key] += rng.choice(["x", " ", "\x00", "\u202e"])
    elif how == "remove":
        del holder[key]
    elif how == "rename" and isinstance(holder, dict):
        holder[rng.choice(["", "x", str(key) + "x", "../" + str(key), "__class__"])] = holder.pop(key)
    elif how == "move":
        other, place = rng.choice(spots)
        other[place] = copy.deepcopy(holder[key])
    elif how == "nest":
        for _ in range(rng.choice([1, 20, 300])):
            holder[key] = [holder[key]] if rng.random() < 0.5 else {"a": holder[key]}


def change_record(rng: random.Random, files: Files) -> None:
    name = rng.choice([RECORD, RECORD, RECORD, DETAILS])
    try:
        value = json.loads(files[name])
    except (ValueError, RecursionError):
        return
    for _ in range(rng.choice([1, 1, 2, 3])):
        change_json(rng, value)
    files[name] = json.dumps(value).encode()


def respell_record(rng: random.Random, files: Files) -> None:
    """What no JSON value can hold: a key twice, NaN, endless digits, brackets without end, another encoding."""
    name = rng.choice([RECORD, DETAILS])
    text = files[name].decode(errors="replace")
    key = rng.choice(["format", "sha256", "shapes", "seal", "class", "attributes", "widths", "spectra"])
    files[name] = rng.choice(
        [
            text.replace("{", f'{{"{key}": {{}}, ', 1).encode(),
            text.replace(": 1", f": {rng.choice(['NaN', 'Infinity', '-Infinity', '1e999'])}", 1).encode(),
            text.replace(": 1", ": " + "9" * rng.choice([30, 5000, 200_000]), 1).encode(),
            ("[" * rng.choice([50, 2000, 200_000])).encode() + files[name],
            (rng.choice(['{"a":', "["]) * 100_000).encode(),
            text.encode("utf-16"),
            b"\xff\xfe" + files[name],
        ]
    )


# Safetensors


def _parsed(content: bytes) -> tuple[Any, bytes] | None:
    length = int.from_bytes(content[:8], "little")
    try:
        return json.loads(content[8 : 8 + length]), content[8 + length :]
    except (ValueError, RecursionError, OverflowError):
        return None


def change_header_length(rng: random.Random, files: Files) -> None:
    length = int.from_bytes(files[WEIGHTS][:8], "little")
    other = rng.choice([0, 1, length - 1, length + 1, length + 8, 2**16, 2**31, 2**40, 2**63, 2**64 - 1])
    files[WEIGHTS] = (other % 2**64).to_bytes(8, "little") + files[WEIGHTS][8:]


def change_header(rng: random.Random, files: Files) -> None:
    """Rename, resize, retype, move, share or swap tensors in the header of the safetensors file."""
    found = _parsed(files[WEIGHTS])
    if found is None or not isinstance(found[0], dict) or not found[0]:
        return
    header, data = found
    name, other = rng.choice(list(header)), rng.choice(list(header))
    entry = header[name]
    how = rng.choice(["rename", "resize", "retype", "move", "swap", "any"])
    if how == "rename":
        header[rng.choice([name + "x", "../" + name, "", "head.0.weight", "\ud800"])] = header.pop(name)
    elif how == "any" or not isinstance(entry, dict):
        change_json(rng, header)
    elif how == "resize" and isinstance(entry.get("shape"), list) and entry["shape"]:
        place = rng.randrange(len(entry["shape"]))
        entry["shape"][place] = rng.choice([0, 1, -1, 2**31, 2**62, 2**63, 7, entry["shape"][place] + 1])
    elif how == "retype":
        entry["dtype"] = rng.choice(["F16", "BF16", "F64", "I64", "BOOL", "U8", "F8_E4M3", "C64", "X", None, 3])
    elif how == "move" and isinstance(entry.get("data_offsets"), list):
        entry["data_offsets"][rng.randrange(2)] = rng.choice([0, 1, -1, 2**31, 2**63, len(data), len(data) + 1])
    elif how == "swap":
        header[name], header[other] = header[other], header[name]
    text = json.dumps(header).encode()
    files[WEIGHTS] = len(text).to_bytes(8, "little") + text + data


def change_numbers(rng: random.Random, files: Files) -> None:
    """Put NaN, infinity or something huge among the numbers."""
    found = _parsed(files[WEIGHTS])
    if found is not None and len(found[1]) >= 4:
        odd = torch.tensor(rng.choice([float("nan"), float("inf"), -float("inf"), 1e38])).numpy().tobytes()
        at = len(files[WEIGHTS]) - len(found[1]) + 4 * rng.randrange(len(found[1]) // 4)
        files[WEIGHTS] = files[WEIGHTS][:at] + odd + files[WEIGHTS][at + 4 :]


MUTATIONS: tuple[Mutation, ...] = (
    *(flip, flip, truncate, insert, delete, repeat, zero, empty, swap),
    *(change_record, change_record, change_record, change_record, respell_record),
    *(change_header_length, change_header, change_header, change_numbers),
)


def forge(files: Files) -> bool:
    """Make checksum and seal right again, as whoever wants to be believed would; whether that was possible."""
    try:
        record = json.loads(files[RECORD])
        if not isinstance(record, dict):
            return False
        record = sealed({**record, "sha256": hashlib.sha256(files[WEIGHTS]).hexdigest()})
        header = _parsed(files[WEIGHTS])
        if header is not None and isinstance(header[0], dict):
            shapes = {k: v.get("shape") for k, v in header[0].items() if isinstance(v, dict) and k != "__metadata__"}
            record = sealed({**record, "shapes": shapes})
        files[RECORD] = json.dumps(record).encode()
    except (ValueError, RecursionError):
        return False
    return True


def disturb(rng: random.Random, folder: Path, name: str) -> None:
    """Put something else than a plain file in its place: nothing, a folder, a pipe, a link to itself or to a device."""
    path = folder / name
    path.unlink()
    how = rng.choice(["missing", "folder", "pipe", "loop", "device", "sparse"])
    if how == "folder":
        path.mkdir()
    elif how == "pipe":
        os.mkfifo(path)
    elif how == "loop":
        path.symlink_to(path)
    elif how == "device":
        path.symlink_to("/dev/zero")
    elif how == "sparse":
        with path.open("wb") as file:
            file.truncate(2**40)


def mutated(rng: random.Random, originals: list[Files]) -> tuple[Files, Files, bool]:
    """A result folder's files, the same after one to three mutations, and whether they were forged to fit again."""
    base = rng.choice(originals)
    files = dict(base)
    if rng.random() < 0.05:
        name = rng.choice([RECORD, WEIGHTS, DETAILS])
        files[name] = rng.choice(originals)[name]  # of another result
    else:
        for _ in range(rng.choice([1, 1, 1, 2, 3])):
            rng.choice(MUTATIONS)(rng, files)
    return base, files, rng.random() < 0.3 and forge(files)
