"""Ways to solve a unit's R' and Q', one file each; the name of a file is that of the ``solver`` setting.

A solver is one function ``solve(problem, cut, config)``: from the plain cut it makes further candidates, of which the
best on held-out images is kept. To add one, add a file that defines ``ENTRY``, a
:class:`ldrf.reconstruction.unit_solver.Solver`, or register it from outside with ``ldrf.registry.SOLVERS``.
"""
