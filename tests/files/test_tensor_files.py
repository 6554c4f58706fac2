"""Tensors are read from whole files of tensors; bombs, code and damage are refused without being unpacked."""

import os
import random
import zipfile
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from ldrf.files.tensor_files import file_size, first_odd, read_safetensors, read_torch

TENSORS = {"a": torch.arange(6.0).view(2, 3), "b": torch.ones(4, dtype=torch.int64)}


class Harmful:
    def __reduce__(self):
        return (print, ("was run",))


@pytest.fixture
def path(tmp_path) -> Path:
    save_file(TENSORS, tmp_path / "a.safetensors")
    torch.save(TENSORS, tmp_path / "a.pt")
    return tmp_path


def header(path: Path, text: str | bytes, data: bytes = b"") -> Path:
    content = text if isinstance(text, bytes) else text.encode()
    path.write_bytes(len(content).to_bytes(8, "little") + content + data)
    return path


def test_whole_files_are_read(path):
    for found in (read_safetensors(path / "a.safetensors"), read_torch(path / "a.pt", checked=True)):
        assert sorted(found) == sorted(TENSORS) and all(torch.equal(found[k], TENSORS[k]) for k in TENSORS)


ENTRY = '"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}'


@pytest.mark.parametrize(
    ("text", "data"),
    [
        (f"{{{ENTRY}, {ENTRY}}}", bytes(4)),
        ("[]", b""),
        ("[" * 5000, b""),
        ('{"a": {"dtype": "F32", "shape": [4611686018427387904, 4], "data_offsets": [0, 4]}}', bytes(4)),
        ('{"a": {"dtype": "F32", "shape": [1000000000000], "data_offsets": [0, 4000000000000]}}', bytes(4)),
        ('{"a": {"dtype": "X9", "shape": [1], "data_offsets": [0, 4]}}', bytes(4)),
        ('{"a": {"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]}}', bytes(4)),
        ('{"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}', bytes(8)),
        ('{"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}, ' + ENTRY.replace("a", "b", 1) + "}", bytes(8)),
        ('{"a": 3}', b""),
        ('{"\\ud800": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}', bytes(4)),
    ],
)
def test_headers_that_lie_are_refused(tmp_path, text, data):
    with pytest.raises(ValueError):
        read_safetensors(header(tmp_path / "a.safetensors", text, data))


@pytest.mark.parametrize("length", [0, 1, 2**20, 2**40, 2**63, 2**64 - 1])
def test_a_header_longer_than_the_file_is_refused(tmp_path, length):
    (tmp_path / "a.safetensors").write_bytes(length.to_bytes(8, "little") + b"{}")
    with pytest.raises(ValueError, match="header is said to be"):
        read_safetensors(tmp_path / "a.safetensors")


@pytest.mark.parametrize("read", [read_safetensors, read_torch])
def test_folders_pipes_and_devices_are_refused(tmp_path, read):
    os.mkfifo(tmp_path / "pipe")
    for place in (tmp_path, tmp_path / "pipe", Path("/dev/zero")):
        with pytest.raises(ValueError, match="not a plain file"):
            read(place)
    with pytest.raises(FileNotFoundError):
        file_size(tmp_path / "none")


def test_code_in_a_pickle_is_not_run(tmp_path, capsys):
    torch.save({"a": Harmful()}, tmp_path / "new.pt")
    torch.save({"a": Harmful()}, tmp_path / "old.pt", _use_new_zipfile_serialization=False)
    for name in ("new.pt", "old.pt"):
        with pytest.raises(ValueError, match="weights_only=True"):
            read_torch(tmp_path / name)
    assert capsys.readouterr().out == ""


def test_a_compressed_archive_is_refused_before_it_is_unpacked(path):
    bomb = path / "bomb.pt"
    with zipfile.ZipFile(path / "a.pt") as whole, zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as packed:
        for part in whole.namelist():
            packed.writestr(part, whole.read(part) + (bytes(50_000_000) if part.endswith("/0") else b""))
    assert bomb.stat().st_size < 100_000
    with pytest.raises(ValueError) as caught:
        read_torch(bomb)
    assert str(caught.value.__cause__) == "it is compressed"


def test_flipped_bits_in_a_checked_file_are_refused(path):
    """Bits that change no tensor may pass, such as those of the archive's padding; what is read is always right."""
    whole, rng, refused = (path / "a.pt").read_bytes(), random.Random(0), 0
    for _ in range(200):
        content = bytearray(whole)
        content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
        (path / "b.pt").write_bytes(content)
        try:
            found = read_torch(path / "b.pt", checked=True)
        except ValueError:
            refused += 1
            continue
        assert sorted(found) == sorted(TENSORS) and all(torch.equal(found[k], TENSORS[k]) for k in TENSORS)
    assert refused > 50


def test_numbers_that_are_none_are_found():
    fine = {"weight": torch.ones(3), "mask": torch.tensor([0.0, -torch.inf]), "count": torch.tensor(3)}
    assert first_odd(fine, {"weight"}) is None
    assert first_odd({**fine, "weight": torch.tensor([1.0, torch.inf])}, {"weight"}) == "weight"
    assert first_odd({**fine, "mean": torch.tensor([torch.nan])}, {"weight"}) == "mean"
    assert first_odd({"weight": torch.full((9,), 6e4, dtype=torch.float16)}, {"weight"}) is None, "only its sum is inf"
