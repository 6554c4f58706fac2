"""Imported by the process that forks those of several tests: their network is exported once, before they are there."""

from exported_once import CheckedOnce, ExportedOnce
from networks import Residual, images, make

from ldrf.inputs import Inputs
from ldrf.recomposition import verification
from ldrf.tracing import trace
from ldrf.tracing.export import export_program, working_copy

trace.export_program = ExportedOnce(export_program)
verification.export_program = CheckedOnce(export_program)
trace.export_program(working_copy(make(Residual)), Inputs((images(4),), {}), decomposed=True)
verification.export_program(working_copy(make(Residual)), Inputs((images(4),), {}))
