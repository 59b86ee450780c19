"""The kinds that publish, tested without a broker."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError

import headway as hw
from headway.bridges.kafka.publishing import declare_kafka, failure
from headway.contract.outcomes import Succeeded
from headway.core.errors import ProviderError, ProviderRefused, ProviderUnsure
from headway.stores.memory import MemoryStore
from headway.testing.clock import FakeClock
from headway.testing.conformance.rig import Rig
from headway.testing.conformance.worker import LEASE_MS


async def test_message_of_a_lost_worker_goes_before_later_ones_of_its_key() -> None:
    clock = FakeClock()
    store = MemoryStore(clock)
    app = hw.App(store=store)
    kind = declare_kafka(app, "localhost:9092").publish_in_order
    async with app:
        sent = [kind.make(topic="t", message_key="k", value=n) for n in range(3)]
        jobs = [one.id for one in await app.send_many_async(sent)]
        rig = Rig(store, clock)
        worker = rig.new_worker()
        assert await worker.take_ids(9, "kafka") == jobs[:1]
        await rig.pass_time(LEASE_MS + 1)
        for job in jobs:
            (run,) = await worker.take(9, "kafka")
            assert run.id == job
            await worker.settle(Succeeded(run.id, run.run))


@pytest.mark.parametrize(
    ("code", "sent", "kind"),
    [
        (KafkaError.MSG_SIZE_TOO_LARGE, True, ProviderRefused),
        (KafkaError.MSG_SIZE_TOO_LARGE, False, ProviderRefused),
        # Without an answer, the broker may have stored what was sent.
        (KafkaError.REQUEST_TIMED_OUT, True, ProviderUnsure),
        (KafkaError.REQUEST_TIMED_OUT, False, ProviderRefused),
    ],
)
def test_message_that_may_have_been_sent_is_refused_only_if_the_broker_says_so(
    code: int, sent: bool, kind: type[ProviderError]
) -> None:
    assert type(failure(KafkaError(code), sent=sent)) is kind
