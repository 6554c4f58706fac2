"""The paper's own method: second-order selection, then R' and Q' solved for every unit (Eqn. 6, Alg. 1 lines 13-18)."""

from ldrf.calibration.network import Network
from ldrf.config import PruneConfig
from ldrf.methods.shared.method import Method, Step
from ldrf.planning.findings import Findings
from ldrf.planning.selection import select
from ldrf.reconstruction.lockstep import Lockstep
from ldrf.reconstruction.unit_solver import Reconstruction, reconstruct
from ldrf.units.unit import Unit


def begin(network: Network, findings: Findings, config: PruneConfig) -> Step:
    def step(walk: Lockstep, unit: Unit, width: int) -> Reconstruction:
        survey, removal = findings.surveys[unit.name], findings.removals.get(unit.name)
        kept = select(config.selection, unit, width, network.dense, survey, removal, config.seed)
        return reconstruct(walk, unit, kept, findings.metrics, config)

    return step


ENTRY = Method("ldrf", begin, "LDRF", "#0b6e4f", allocation="error", picks_by_curves=True, repairs_all=True)
