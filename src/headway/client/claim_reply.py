"""The answer to a claim, read quickly: it is what a worker reads most."""

from __future__ import annotations

from functools import lru_cache

import msgspec

from headway.client.read_record import read_record
from headway.contract.claims import Claimed, ClaimReply
from headway.core.errors import StoreUnavailable
from headway.core.job import DEFAULT_POLICY, JobPolicy


class ToldJob(msgspec.Struct, kw_only=True):
    """A job that starts now, as a server tells it."""

    id: str
    run: int
    kind: str
    lane: str
    args: msgspec.Raw
    attempt: int = 1
    stage: str = ""
    tenant: str = ""
    subject: str | None = None
    priority: int = 0
    due_at: int = 0
    policy: msgspec.Raw = msgspec.Raw(b"{}")
    gated: bool = False
    members: dict[str, str] = {}
    candidate: str = ""
    ref: str = ""
    signal_url: str | None = None

    def claimed(self) -> Claimed:
        """The same, as a store tells it."""
        return Claimed(
            self.id,
            self.run,
            self.attempt,
            self.kind,
            self.stage,
            self.lane,
            self.tenant,
            self.subject,
            bytes(self.args),
            self.priority,
            self.due_at,
            _policy(bytes(self.policy)),
            self.gated,
            self.members,
            self.candidate,
        )


class ToldClaim(msgspec.Struct, kw_only=True):
    """What a claim hands out, as a server tells it."""

    jobs: list[ToldJob]
    now: int
    request: int = 0
    lease_until: int | None = None
    next_at: int | None = None
    again: bool = False
    after: dict[str, int] = {}

    def reply(self, seen: int = 0) -> ClaimReply:
        """The same, as a store tells it.

        Args:
            seen: to be given to `wait`.
        """
        return ClaimReply(
            jobs=[job.claimed() for job in self.jobs],
            now=self.now,
            # A poll that never came to claim has kept no lease.
            lease_until=self.now if self.lease_until is None else self.lease_until,
            next_at=self.next_at,
            again=self.again,
            after=self.after,
            seen=seen,
        )


_decode = msgspec.json.Decoder(ToldClaim).decode


def read_claim(body: bytes) -> ToldClaim:
    """Reads the answer to a claim.

    Raises:
        StoreUnavailable: it is none.
    """
    try:
        return _decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        message = f"the server's claim cannot be read: {error}"
        raise StoreUnavailable(message, hint="is it a Headway server of this version?") from None


@lru_cache(maxsize=1024)
def _policy(said: bytes) -> JobPolicy:
    policy = read_record(JobPolicy, msgspec.json.decode(said))
    return DEFAULT_POLICY if policy == DEFAULT_POLICY else policy
