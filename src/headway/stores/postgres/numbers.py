"""The keys of whole numbers that the store keeps by key."""

from __future__ import annotations

HIGH_WATER = -1
"""The highest time that was ever used, ms."""
REVISION = -3
"""Of the definitions, as the contract tells it."""
DEFINITIONS = -4
"""Grows whenever a declared gate is written, so that other processes read them again."""
EPOCH = -5
KEPT_EVENTS = -7
IDENTITY = -8
"""Random, written once."""
SCHEMA = -9
"""The number of the last migration, so that a running process sees that it was overtaken."""
EPOCH_AT = -10
"""When the present epoch was begun, by the store's time, ms."""
OLDEST_PROGRAM = -11
"""Programs that know at least this schema understand the store."""
LANES = -12
"""Grows whenever what a lane carries is written, so that other processes read it again."""
SUSPECT = -13
"""1 while the store is another one, or older, than some process knows it."""
BEHIND = -14
"""Grows whenever a step with the turn lets jobs wait that may stand before others."""
FIRST_TOTAL = -16
"""Totals lie from here down, one for each word; a lane's counts above 0."""
WIDTH = 8
"""States: so many numbers belong to a lane."""
