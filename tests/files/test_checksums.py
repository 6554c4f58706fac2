"""Checksums lie in files, so each is compared with the bytes that it has always been made of."""

import hashlib

import numpy as np
import pytest
import torch

from ldrf.files.checksums import file_checksum, fingerprint, state_checksum, tensor_bytes

WEIGHT, COUNT = torch.arange(6, dtype=torch.float32).view(2, 3), torch.tensor(7)


def sha256(*parts: bytes) -> str:
    return hashlib.sha256(b"".join(parts)).hexdigest()


def floats(*values: float) -> bytes:
    return np.array(values, dtype="<f4").tobytes()


def test_a_fingerprint_is_of_names_dtypes_shapes_and_bits():
    bits = floats(0, 1, 2, 3, 4, 5)
    assert fingerprint([("w", WEIGHT)]) == sha256(b"w torch.float32 (2, 3)\n", bits)
    assert fingerprint([("n", COUNT)]) == sha256(b"n torch.int64 ()\n", (7).to_bytes(8, "little"))
    assert fingerprint([(0, None), (1, "a")]) == sha256(b"0 None\n", b"1 'a'\n")
    assert fingerprint([("w", WEIGHT), ("n", 2)]) == sha256(b"w torch.float32 (2, 3)\n", bits, b"n 2\n")


def test_a_state_checksum_is_of_names_and_bits_and_what_is_added():
    bits = floats(0, 1, 2, 3, 4, 5) + (7).to_bytes(8, "little")
    state = {"w": WEIGHT, "n": COUNT}
    assert state_checksum(state) == sha256(b"w", bits[:24], b"n", bits[24:])
    assert state_checksum(state, [b"more", memoryview(b"!")]) == sha256(b"w", bits[:24], b"n", bits[24:], b"more!")


@pytest.mark.parametrize(
    "change",
    [
        lambda w: [("v", w)],
        lambda w: [("w", w.view(3, 2))],
        lambda w: [("w", w.view(torch.int32))],
        lambda w: [("w", w + 1e-6)],
        lambda w: [("w", w), ("w", w)],
    ],
)
def test_any_change_gives_another_fingerprint(change):
    assert fingerprint(change(WEIGHT)) != fingerprint([("w", WEIGHT)])


def test_the_layout_does_not_count():
    image = torch.arange(48, dtype=torch.float32).view(1, 3, 4, 4)
    last = image.contiguous(memory_format=torch.channels_last)
    assert image.stride() != last.stride() and fingerprint([("x", image)]) == fingerprint([("x", last)])
    assert bytes(tensor_bytes(image.half().requires_grad_())) == image.half().numpy().tobytes()


def test_the_checksum_of_a_file_is_that_of_its_content(tmp_path):
    (tmp_path / "a").write_bytes(b"abc" * 100_000)
    assert file_checksum(tmp_path / "a") == sha256(b"abc" * 100_000)
