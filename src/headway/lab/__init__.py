"""The lab: the real engine on virtual time, and the simulated outside world of the demo.

`headway.lab.simulate` plays a scenario file, `headway.lab.tables.show` prints what came of it, and
`headway.lab.plots.draw` draws it.
"""

from __future__ import annotations
