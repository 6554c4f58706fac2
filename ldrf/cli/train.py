"""``ldrf train``: train a network of the zoo on CIFAR-10."""

from dataclasses import asdict

import torch

from ldrf.cli.arguments.train import Train
from ldrf.cli.models import ZOO, load_weights
from ldrf.cli.output import Report, facts
from ldrf.data.sources import open_cifar10
from ldrf.zoo.training import evaluate, save_weights, train


def run(arguments: Train) -> Report:
    """Train to the last epoch, resuming from the folder if it has a state, and keep the weights."""
    images, test = (open_cifar10(arguments.data, split) for split in ("train", "test"))
    torch.manual_seed(arguments.recipe.seed)
    model = ZOO[arguments.model]()
    if arguments.weights is not None:
        load_weights(model, arguments.weights)
    model = train(model, images, test, arguments.out, arguments.recipe)
    weights = arguments.out / "model.safetensors"
    save_weights(model.state_dict(), weights)
    top1 = evaluate(model, test)
    data = {"model": arguments.model, "top1": top1, "weights": str(weights)}
    rows = {"top-1": f"{top1:.2f} %", "test images": f"{len(test):,}", "weights": str(weights)}
    return Report({**data, "recipe": asdict(arguments.recipe)}, [facts(rows)])
