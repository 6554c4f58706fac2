"""Methods that choose neurons by what each adds in the slim network, then repair the weights of the consumers."""

from collections.abc import Callable

import torch
from torch import Tensor

from ldrf.baselines.contributions import Contributions, contributions, total
from ldrf.baselines.cutting import judged
from ldrf.config import PruneConfig
from ldrf.methods import Findings, Method, Step, Turn
from ldrf.problem import Problem, open_problem, with_kept
from ldrf.reconstruction import Reconstruction, Solution

Choose = Callable[[Contributions, int], Tensor]  # contributions to all consumers, the width -> the neurons that stay
Repair = Callable[[Problem, list[Contributions], PruneConfig], Solution]  # the contributions to each consumer


def repairing_method(name: str, choose: Choose, repair: Repair, way: str, centred: bool = False) -> Method:
    """A method that opens a unit's problem with all its neurons, chooses, and repairs what is left."""

    def begin(findings: Findings, config: PruneConfig) -> Step:
        def solved(problem: Problem, found: list[Contributions], kept: Tensor) -> Reconstruction:
            slim = with_kept(problem, kept)
            return judged(slim, repair(slim, found, config), way)

        def step(turn: Turn) -> Reconstruction:
            whole = turn.standing(torch.arange(turn.unit.width))
            with open_problem(turn.walk, whole, findings.metrics) as problem:
                found = contributions(problem, config.seed, centred)
                kept = choose(total(found), turn.width)
                unit = turn.standing(kept)
                if [c.layer for c in unit.consumers] == [c.layer for c in whole.consumers]:
                    return solved(problem, found, kept)
            # Consumers that are partners too lose outputs with the neurons that go.
            with open_problem(turn.walk, unit, findings.metrics) as problem:
                return solved(problem, contributions(problem, config.seed, centred), kept)

        return step

    return Method(name, begin)
