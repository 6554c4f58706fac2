"""The activation store keeps to its budget, gives back what was put in, and leaves nothing behind."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ldrf.store import ActivationStore


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
        store.put(("a",), value)
        found = store.get(("a",))
        assert found.dtype == value.dtype and torch.equal(found, value)


@given(sizes=st.lists(st.integers(1, 50), max_size=12), budget=st.integers(0, 400))
def test_the_budget_holds_and_everything_is_found_again(sizes, budget):
    with ActivationStore(budget) as store:
        values = {(i,): torch.randn(size) for i, size in enumerate(sizes)}
        for key, value in values.items():
            store.put(key, value)
            assert store.used <= budget
        assert sorted(store) == sorted(values)
        assert all(torch.equal(store.get(key), value) for key, value in values.items())
        for key in values:
            store.drop(key)
        assert store.used == 0 and list(store) == []


def test_dropping_makes_room_and_removes_files(monkeypatch, tmp_path):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    files = lambda: list(tmp_path.rglob("*.bin"))  # noqa: E731
    with ActivationStore(40) as store:
        store.put(("a",), torch.zeros(10))
        store.put(("b",), torch.ones(10))
        assert len(files()) == 1
        store.put(("b",), torch.full((10,), 2.0))  # replaced, not added
        assert len(files()) == 1 and store.get(("b",))[0] == 2
        store.drop(("a",))
        store.put(("c",), torch.zeros(10))
        assert store.used == 40 and len(files()) == 1
    assert list(tmp_path.iterdir()) == []


def test_the_folder_goes_when_the_work_fails(monkeypatch, tmp_path):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(KeyboardInterrupt), ActivationStore(0) as store:
        store.put(("a",), torch.zeros(3))
        assert list(tmp_path.iterdir())
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []


def test_a_small_view_does_not_keep_its_large_base():
    base = torch.randn(1000, 10)
    with ActivationStore(10_000) as store:
        store.put(("a",), base[:2])
        assert store.get(("a",)).untyped_storage().nbytes() == 80
