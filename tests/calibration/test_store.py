"""The activation store keeps to its budget, gives back what was put in, and leaves nothing behind."""

import errno

import pretend_device
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ldrf.calibration.store import ActivationStore, Key
from ldrf.errors import LdrfError


def key(number: int) -> Key:
    return Key("dense", 0, "value", str(number))


A = key(0)


@pytest.mark.parametrize("budget", [0, 10**9])
@pytest.mark.parametrize(
    "value",
    [
        torch.randn(3, 4),
        torch.randn(5).half(),
        torch.randn(2, 3).bfloat16(),
        torch.tensor(7.5),
        torch.arange(6).view(2, 3),
        torch.tensor([True, False]),
        torch.zeros(0, 3),
        torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
        torch.randn(6, 6)[:, ::2],
    ],
    ids=lambda v: f"{v.dtype}{list(v.shape)}",
)
def test_round_trip_in_memory_and_on_disk(budget, value):
    with ActivationStore(budget) as store:
        store.put(A, value)
        got = store.get(A)
        assert got.dtype == value.dtype and torch.equal(got, value)


def test_what_can_be_computed_again_leaves_half_of_the_memory_free():
    with ActivationStore(budget=100) as store:
        for number in range(4):
            store.put_if_roomy(key(number), torch.zeros(6))
        assert list(store) == [key(0), key(1)] and store.used == 48 and not store.spilled


@given(sizes=st.lists(st.integers(1, 50), max_size=12), budget=st.integers(0, 400))
def test_the_budget_holds_and_everything_is_found_again(sizes, budget):
    with ActivationStore(budget) as store:
        values = {key(i): torch.randn(size) for i, size in enumerate(sizes)}
        for own, value in values.items():
            store.put(own, value)
            assert store.used <= budget
        assert set(store) == set(values)
        assert all(torch.equal(store.get(own), value) for own, value in values.items())
        for own in values:
            store.drop(own)
        assert store.used == 0 and list(store) == []


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(1, 40)), max_size=40))
def test_spilled_values_stay_apart_and_room_is_used_again(steps):
    with ActivationStore(0) as store:
        values, most = {}, 0
        for name, size in steps:  # put where there is none, replace or drop where there is one
            if name in values and size % 2:
                store.drop(key(name))
                del values[name]
            else:
                values[name] = torch.randn(size)
                store.put(key(name), values[name])
            most = max(most, sum(4 * len(v) for v in values.values()))
            assert all(torch.equal(store.get(key(n)), value) for n, value in values.items())
            assert store.spilled <= 2 * most + 400
        for name in values:
            store.drop(key(name))
        assert store.spilled == 0


def test_the_file_has_no_name_and_goes_when_the_work_fails(tmp_path):
    with pytest.raises(KeyboardInterrupt), ActivationStore(0, tmp_path) as store:
        store.put(A, torch.zeros(3))
        assert store.spilled == 12 and list(tmp_path.iterdir()) == []
        raise KeyboardInterrupt
    assert store.spilled == 0


def test_the_file_lies_in_the_folder_named(tmp_path):
    with (
        ActivationStore(0, tmp_path / "gone") as store,
        pytest.raises(LdrfError, match="write activations to '.*gone'"),
    ):
        store.put(A, torch.zeros(3))


def test_a_full_disk_is_told_in_one_sentence(monkeypatch, tmp_path):
    def full(self, data):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("ldrf.calibration.store.SpillFile.write", full)
    with ActivationStore(0, tmp_path) as store, pytest.raises(LdrfError, match="No space left on device. Make room"):
        store.put(A, torch.zeros(3))


@pytest.mark.parametrize(
    "value",
    [
        torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
        torch.randn(4, 6).T,
        torch.randn(6, 6)[:, ::2],
        torch.randn(1, 4).expand(3, 4),
        torch.randn(2, 1, 3, 1).to(memory_format=torch.channels_last),
    ],
    ids=["channels last", "transposed", "every other", "expanded", "size one"],
)
def test_values_lie_in_memory_as_they_did_whether_spilled_or_not(value):
    """Sums over another layout come out in other bits, so a budget could be seen in the result."""
    spilled, held = (_round_trip(budget, value) for budget in (0, 10**9))
    assert torch.equal(spilled, value) and spilled.stride() == held.stride()


def _round_trip(budget: int, value: torch.Tensor) -> torch.Tensor:
    with ActivationStore(budget) as store:
        store.put(A, value)
        return store.get(A)


def test_a_small_view_does_not_keep_its_large_base():
    base = torch.randn(1000, 10)
    with ActivationStore(10_000) as store:
        store.put(A, base[:2])
        assert store.get(A).untyped_storage().nbytes() == 80


@pytest.mark.parametrize("budget", [0, 10**9])
def test_keys_are_found_by_owner_chunk_and_role(budget):
    values = {
        Key("dense", 0, "value", "relu"): torch.tensor(1.0),
        Key("slim", 0, "value", "relu"): torch.tensor(2.0),
        Key("slim", 1, "value", "relu"): torch.tensor(3.0),
        Key("unit", 0, "input"): torch.tensor(4.0),
        Key("unit", 0, "side", "relu"): torch.tensor(5.0),
    }
    with ActivationStore(budget) as store:
        for own, value in values.items():
            store.put(own, value)
        assert store.keys("slim", 1, "value") == {"relu": Key("slim", 1, "value", "relu")}
        assert list(store.keys("unit", 0, "side")) == ["relu"] and not store.keys("unit", 1, "side")
        store.drop_all("unit")
        assert {own for own in values if own.owner != "unit"} == set(store)
        assert float(store.get(Key("slim", 0, "value", "relu"))) == 2.0


def test_a_device_keeps_what_fits_its_budget_and_the_host_what_fits_its_own():
    with pretend_device.seen():
        there, values = torch.device("pretend", 0), [torch.randn(10).to("pretend") for _ in range(4)]
        with ActivationStore(80, device=there, device_budget=40) as store:  # one on the device, two in memory
            for i, value in enumerate(values):
                store.put(key(i), value)
            assert (store.device_used, store.used, store.spilled) == (40, 80, 40)
            for i, value in enumerate(values):
                got = store.get(key(i))
                assert got.device == there and torch.equal(got.cpu(), value.cpu())
            store.drop(key(0))
            store.put(key(4), values[0])
            assert (store.device_used, store.used) == (40, 80)


@pytest.mark.parametrize("budget", [0, 10**6], ids=["disk", "host"])
def test_the_next_chunk_is_read_ahead(budget):
    with pretend_device.seen():
        there = torch.device("pretend", 0)
        with ActivationStore(budget, device=there) as store:
            values = {chunk: torch.full((3,), float(chunk)).to("pretend") for chunk in range(4)}
            for chunk, value in values.items():
                store.put(Key("dense", chunk, "value", "x"), value)
                store.put(Key("unit", chunk, "input"), -value)
            for chunk in store.in_turn(list(values), "dense"):
                ahead = set(store._ahead)
                assert ahead <= {Key("dense", c, "value", "x") for c in (chunk, chunk + 1)}  # no other owner's
                assert chunk == 3 or Key("dense", chunk + 1, "value", "x") in ahead
                assert torch.equal(store.get(Key("dense", chunk, "value", "x")).cpu(), values[chunk].cpu())
                store.put(Key("dense", chunk, "value", "x"), values[chunk] + 1)
            for chunk, value in values.items():
                assert torch.equal(store.get(Key("dense", chunk, "value", "x")).cpu(), value.cpu() + 1)


def test_what_was_read_ahead_is_forgotten_when_it_is_replaced():
    with ActivationStore(0) as store:
        store.put(Key("unit", 1, "input"), torch.zeros(3))
        store.read_ahead(1, "unit")
        store.put(Key("unit", 1, "input"), torch.ones(3))
        assert torch.equal(store.get(Key("unit", 1, "input")), torch.ones(3))
