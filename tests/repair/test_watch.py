"""What proves that a store is a different or an older one, and what does not."""

from __future__ import annotations

import pytest

from headway.stores.ledger.fingerprint import FingerprintWatch, StoreFingerprint

FIRST = StoreFingerprint(identity=1, epoch=1, epoch_at=0, high_water=100)


@pytest.fixture
def watch() -> FingerprintWatch:
    made = FingerprintWatch()
    made.accept(FIRST, made.known)
    return made


def test_reply_handled_after_a_later_one_is_no_proof(watch: FingerprintWatch) -> None:
    early = late = watch.known
    assert watch.may_follow(FIRST._replace(high_water=200), early)
    watch.accept(FIRST._replace(high_water=200), early)
    overtaken = FIRST._replace(high_water=150)
    assert watch.may_follow(overtaken, late)
    watch.accept(overtaken, late)
    assert watch.known == FIRST._replace(high_water=200)
    assert watch.reason == ""


def test_time_before_what_was_known_at_the_request_is_proof_and_says_which(
    watch: FingerprintWatch,
) -> None:
    older = FIRST._replace(high_water=99)
    before = watch.known
    assert not watch.may_follow(older, before)
    watch.suspect(older, before)
    assert "99" in watch.reason
    assert "100" in watch.reason
    assert not watch.may_follow(FIRST._replace(high_water=300), watch.known)
    later = StoreFingerprint(identity=1, epoch=2, epoch_at=300, high_water=300)
    assert watch.may_follow(later, watch.known)
    watch.accept(later, watch.known)
    assert watch.reason == ""


@pytest.mark.parametrize(
    "other", [FIRST._replace(identity=2), FIRST._replace(epoch=0)], ids=["identity", "epoch"]
)
def test_another_identity_or_an_earlier_epoch_is_proof(
    watch: FingerprintWatch, other: StoreFingerprint
) -> None:
    assert not watch.may_follow(other._replace(high_water=500), watch.known)


def test_overtaken_reply_of_the_previous_epoch_changes_nothing(watch: FingerprintWatch) -> None:
    early = watch.known
    # The operator has set back the store's time.
    watch.accept(StoreFingerprint(identity=1, epoch=2, epoch_at=50, high_water=50), watch.known)
    assert watch.may_follow(FIRST._replace(high_water=150), early)
    watch.accept(FIRST._replace(high_water=150), early)
    assert watch.may_follow(
        StoreFingerprint(identity=1, epoch=2, epoch_at=50, high_water=60), watch.known
    )
