"""Prune the bundled VGG-9 to a third of its MACs, compare, save, load.

python examples/quickstart.py            # a few minutes on two cores
python examples/quickstart.py --quick    # few images and no descent, to see that everything works
"""

import sys
import tempfile

import ldrf
from ldrf.data.sources import open_data
from ldrf.measuring.accuracy import measure_accuracy
from ldrf.zoo.pretrained import pretrained_vgg9

QUICK = "--quick" in sys.argv
IMAGES = 16 if QUICK else 2000
IGNORE = "classifier.*" if QUICK else ()  # the wide linear layers take most of the time and hold few of the MACs
FAST = ldrf.PruneConfig(solver="closed-form", selection="weight", allocation="uniform")
CONFIG = FAST if QUICK else ldrf.PruneConfig(steps=100)


def main() -> None:
    # A trained network of any kind, and images like those it will see. Labels in the batches are not read.
    model = pretrained_vgg9()
    batches = open_data("sample", "train").take(IMAGES)

    # Same class, same depth, same forward: only narrower. The model given stays as it is.
    result = ldrf.prune(model, batches, speedup=3.0, ignore=IGNORE, config=CONFIG)
    print(result)

    # No fine-tuning in between.
    test = open_data("sample", "test").take(IMAGES)
    dense, slim = measure_accuracy(model, test), measure_accuracy(result.model, test)
    print(f"\ntop-1 on {dense.images} test images: dense {dense.top1:.2f} %, slim {slim.top1:.2f} %")

    with tempfile.TemporaryDirectory() as folder:
        # Safetensors and JSON, no pickle. Loading cuts a fresh dense model to the saved widths.
        ldrf.save(result, f"{folder}/slim")
        again = ldrf.load(f"{folder}/slim", pretrained_vgg9())
        assert measure_accuracy(again, test) == slim


if __name__ == "__main__":
    main()
