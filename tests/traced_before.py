"""Imported by the process that forks those of several tests: their first export is then as quick as any other."""

from networks import Chain, images, make

from ldrf.inputs import Inputs
from ldrf.tracing.export import export_program

export_program(make(Chain), Inputs((images(4),), {}), decomposed=True)
