"""Build the bundled CIFAR-10 sample from the full set: ``python benchmarks/make_sample.py --data FOLDER``."""

import argparse

import torch

from ldrf.data.cifar10 import CLASSES, LabelledImages, load_cifar10
from ldrf.data.sample import load_sample, save_sample

PER_CLASS = 200


def choose(data: LabelledImages, seed: int) -> LabelledImages:
    """The same number of random images of every class, in their original order."""
    generator = torch.Generator().manual_seed(seed)
    rows = []
    for label in range(len(CLASSES)):
        members = (data.labels == label).nonzero().flatten()
        rows.append(members[torch.randperm(len(members), generator=generator)[:PER_CLASS]])
    return data[torch.cat(rows).sort().values]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", required=True, help="folder with CIFAR-10 in any of its published forms")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    made = [choose(load_cifar10(options.data, split), options.seed) for split in ("train", "test")]
    save_sample(made[0], made[1])
    for before, after in zip(made, load_sample(), strict=True):
        if not (torch.equal(before.images, after.images) and torch.equal(before.labels, after.labels)):
            raise SystemExit("the packed sample does not read back bit for bit")
    print(f"{len(made[0])} training and {len(made[1])} test images packed, bit-exact")


if __name__ == "__main__":
    main()
