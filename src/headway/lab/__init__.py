"""The lab: the real engine in virtual time, with a simulated outside world.

`headway.lab.simulate` simulates a scenario file, `headway.lab.tables.show` prints the reports, and
`headway.lab.plots.draw` plots them.
"""

from __future__ import annotations
