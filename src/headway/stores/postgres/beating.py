"""Beats: on a connection of their own, without the turn, so that no other call delays a lease."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

from headway.contract.claims import BeatReply, BeatRequest
from headway.stores.ledger.verbs import beat
from headway.stores.postgres.done import Done
from headway.stores.postgres.mode import Mode, NeedsMore
from headway.stores.postgres.steps import Steps

_LATER = (None, Done(wrote=False, woken={}, told=False))


class Beats:
    """The beats of one process, as far as they need no turn.

    A lease is one row, written only if it is still the one that was read. So a beat and a step
    with the turn that take each other's worker cannot both commit.

    Args:
        steps: on the connection of beats.
    """

    def __init__(self, steps: Steps) -> None:
        self._steps = steps

    def beat(self, request: BeatRequest) -> tuple[BeatReply | None, Done]:
        """See `Store.beat`.

        Returns:
            The reply; None if the beat must be made again with the turn, because jobs change. The
            lease is extended all the same, if it has not ended. And what the step has done.
        """
        if request.leaving:
            return _LATER
        if not request.progress:
            with suppress(NeedsMore):
                return self._run(request)
        # If the lease has ended this is refused as well: what the worker held is lost.
        with suppress(NeedsMore):
            self._run(replace(request, progress=(), request=0))
        return _LATER

    def _run(self, request: BeatRequest) -> tuple[BeatReply, Done]:
        kind = ("beat", request.worker)
        return self._steps.run(Mode.BEAT, lambda ledger: beat(ledger, request), kind=kind)
