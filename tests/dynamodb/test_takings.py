"""Writes whose answers tell only what has changed."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from moto import mock_aws

from zae_limiter import Limit, SyncRateLimiter, SyncRepository
from zae_limiter.backends.dynamodb.bucket_codec import bucket_key
from zae_limiter.backends.dynamodb.expressions import Expression
from zae_limiter.backends.dynamodb.store import DynamoStore
from zae_limiter.core.composite import Bucket, BucketAddress
from zae_limiter.core.limit import LimitSet
from zae_limiter.core.planner import Crowded, Intent, Short, plan, plan_create, plan_restamp
from zae_limiter.core.writes import Adjust, Drain, Granted, Write
from zae_limiter.testing import ManualClock

from .support import NS, Runner

LIMITS = LimitSet.of([Limit.per_hour("rph", 7), Limit.per_day("tpd", 1_000)])
TAKES_MILLI = {"rph": 10, "tpd": 100, "wcu": 1250}
ADDRESS = BucketAddress(NS, "key-1", "gpt-4")
START_MS = 1_800_000_000_000


def intent(ttl_seconds: int | None = None, parent_id: str | None = None) -> Intent:
    return Intent(LIMITS, TAKES_MILLI, 1, ttl_seconds, parent_id, parent_id is not None, True)


class Scene:
    """A bucket in a table, and what others do to it."""

    def __init__(self, driver: Runner, store: DynamoStore) -> None:
        self._driver = driver
        self._store = store
        self.now_ms = START_MS
        first = plan_create(intent(), driver.io.operation_id(), START_MS)
        assert not isinstance(first, Short)
        self.write(first)

    def write(self, write: Write) -> Bucket:
        outcome = self._driver.run(self._store.buckets.write(ADDRESS, write))
        assert isinstance(outcome, Granted), write
        return outcome.bucket

    def stored(self) -> Bucket:
        found: dict[BucketAddress, Bucket] = self._driver.run(self._store.buckets.read([ADDRESS]))
        return found[ADDRESS]

    def remove(self, attribute: str) -> None:
        """Change the item by hand."""
        e = Expression()
        e.remove(attribute)
        key = bucket_key(ADDRESS)
        self._driver.run(self._store.table.update(key, **e.update_request()))

    def calls(self) -> int:
        return self._store.table.client.meter.calls.total()

    def take(self, seen: Bucket) -> Bucket:
        """Take from the bucket, by an image that may be old."""
        after = self.try_to_take(seen)
        assert after is not None
        return after

    def try_to_take(self, seen: Bucket) -> Bucket | None:
        """The same. None when it was refilled instead, or the image was too old."""
        planned = plan(intent(), seen, self._driver.io.operation_id(), self.now_ms)
        assert not isinstance(planned, Short | Crowded)
        outcome = self._driver.run(self._store.buckets.write(ADDRESS, planned))
        is_taking = isinstance(planned, Drain) and isinstance(outcome, Granted)
        return outcome.bucket if is_taking else None

    def refill(
        self,
        ttl_seconds: int | None = None,
        parent_id: str | None = None,
        limits: LimitSet = LIMITS,
    ) -> None:
        """As one does who brings the bucket up to date, and says something else of it."""
        self.now_ms += 1_234
        owner = intent(ttl_seconds, parent_id)._replace(limits=limits)
        self.write(plan_restamp(owner, self.stored(), self._driver.io.operation_id(), self.now_ms))

    def adjust(self, seen: Bucket | None = None, /, **deltas_milli: int) -> Bucket:
        operation = self._driver.io.operation_id()
        seen = seen or self.stored()
        return self.write(Adjust(operation, self.now_ms, deltas_milli, 0, seen))


@pytest.fixture
def scene(driver: Runner, store: DynamoStore) -> Scene:
    return Scene(driver, store)


def test_an_image_and_what_changed_make_the_item(scene: Scene) -> None:
    seen = scene.stored()
    scene.adjust(rph=500, tpd=300)
    scene.take(scene.stored())
    calls = scene.calls()
    after = scene.take(seen)
    assert scene.calls() == calls + 1
    assert after == scene.stored()


def test_what_others_did_since_is_known_too(scene: Scene) -> None:
    """But for what nothing tells of: that is asked for with the next taking."""
    seen = scene.stored()
    scene.refill(ttl_seconds=86_400, parent_id="org-1")
    first = scene.take(seen)
    truth = scene.stored()
    assert (first.parent_id, truth.parent_id) == (None, "org-1")
    assert first == truth._replace(
        expires_at_s=None, parent_id=None, cascade=False, is_partial=True
    )
    second = scene.take(first)
    assert second == scene.stored()
    assert not second.is_partial


@pytest.mark.parametrize("delta_milli", [300, -300, -(10**9)])
def test_an_adjustment_makes_an_image_no_older(scene: Scene, delta_milli: int) -> None:
    scene.adjust(rph=3_000, tpd=5_000)
    seen = scene.stored()
    scene.take(seen)
    calls = scene.calls()
    after = scene.adjust(seen, tpd=delta_milli)
    assert scene.calls() == calls + 1
    truth = scene.stored()
    others = {name: cell for name, cell in seen.cells.items() if name != "tpd"}
    assert after == truth._replace(cells={**truth.cells, **others}, acquires=seen.acquires)


def test_an_adjustment_of_a_bucket_that_was_refilled_says_so(scene: Scene) -> None:
    scene.adjust(rph=3_000, tpd=5_000)
    seen = scene.stored()
    scene.refill(parent_id="org-1")
    after = scene.adjust(seen, tpd=300)
    truth = scene.stored()
    assert after.is_partial
    assert after.refilled_at_ms == truth.refilled_at_ms
    assert after.cells["tpd"].tokens_milli == truth.cells["tpd"].tokens_milli
    assert scene.adjust(after, tpd=300) == scene.stored()


def test_an_adjustment_of_a_bucket_with_other_limits_finds_them(scene: Scene) -> None:
    seen = scene.stored()
    scene.refill(limits=LimitSet.of([Limit.per_day("tpd", 2_000)]))
    after = scene.adjust(seen, tpd=300)
    assert after == scene.stored()
    assert after.fingerprint != seen.fingerprint


def test_an_adjustment_reaches_a_limit_that_the_image_does_not_know(scene: Scene) -> None:
    before = scene.stored()
    only = {name: cell for name, cell in before.cells.items() if name != "tpd"}
    after = scene.adjust(before._replace(cells=only), tpd=300)
    assert after == scene.stored()
    assert after.cells["tpd"].tokens_milli == before.cells["tpd"].tokens_milli - 300


@pytest.mark.parametrize("lacking", ["l2", "b_rph_rm"])
def test_an_item_that_lacks_what_it_may_lack_is_taken_from(scene: Scene, lacking: str) -> None:
    """As one that an older client made."""
    seen = scene.stored()
    scene.remove(lacking)
    after = scene.take(seen)
    assert after == scene.stored()
    calls = scene.calls()
    scene.refill()
    second = scene.take(scene.stored())
    assert second == scene.stored()
    # A reading before each of them, and one after.
    assert scene.calls() == calls + 5


def test_an_item_of_an_older_client_is_whole_once_it_is_stamped(scene: Scene) -> None:
    for attribute in ("cv", "lo", "l1", "l2", "l3", "b_rph_rm", "b_tpd_rm", "b_wcu_rm"):
        scene.remove(attribute)
    scene.refill()
    seen, calls = scene.stored(), scene.calls()
    assert scene.take(seen) == scene.stored()
    assert scene.calls() == calls + 2


@pytest.mark.parametrize("seed", range(12))
def test_whatever_happens_meanwhile_balances_are_told_exactly(scene: Scene, seed: int) -> None:
    chance = random.Random(seed)
    scene.adjust(rph=3_000, tpd=500_000)
    images = [scene.stored()]
    happenings: list[Callable[[], object]] = [
        lambda: scene.refill(chance.choice((None, 86_400)), chance.choice((None, "org-1"))),
        lambda: scene.adjust(rph=chance.randint(-300, 300), tpd=chance.randint(-300, 300)),
        lambda: scene.adjust(tpd=-chance.choice((300, 300, 10**9))),
        lambda: None,
    ]
    told = 0
    for _ in range(30):
        chance.choice(happenings)()
        seen = chance.choice(images[-3:])
        after = scene.try_to_take(seen)
        truth = scene.stored()
        images.append(truth)
        if after is not None:
            told += 1
            assert after[:5] == truth[:5]
            assert after.is_partial == (truth.refilled_at_ms != seen.refilled_at_ms)
            assert after == truth or after.is_partial
    assert told


@mock_aws
def test_a_server_that_does_not_tell_what_stayed_is_asked() -> None:
    """moto is one: it compares."""
    clock = ManualClock()
    repository = SyncRepository.open(
        url="dynamodb://us-east-1/limits", transport="botocore", clock=clock, create=True
    )
    repository.set_system_defaults([Limit.per_hour("rph", 100)])
    limiter = SyncRateLimiter(repository)
    for _ in range(5):
        with limiter.acquire("key-1", "gpt-4", {"rph": 10}):
            pass
    assert limiter.available("key-1", "gpt-4") == {"rph": 50}
    (state,) = repository.get_buckets("key-1", "gpt-4")
    assert state.tokens_milli == 50_000
    repository.close()
