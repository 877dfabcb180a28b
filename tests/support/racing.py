"""Several clients on one bucket: old images, wrong clocks, splits, writes that land late or
twice.

A race is a list of steps, so that a failure found by chance is a tape that can be kept.
After each write the invariants of the item are checked; what moved is kept as a history.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, assert_never

from zae_limiter.core.apply import apply
from zae_limiter.core.bucket import Bucket, cell_of, merge, refill, retire, split
from zae_limiter.core.limit import LimitSet
from zae_limiter.core.planner import (
    Crowded,
    Intent,
    Short,
    plan,
    plan_create,
    plan_first,
    plan_restamp,
)
from zae_limiter.core.shards import RETIRED
from zae_limiter.core.validation import WCU
from zae_limiter.core.writes import (
    Absent,
    Adjust,
    Create,
    Granted,
    Outcome,
    Refill,
    Refused,
    Take,
    Write,
)
from zae_limiter.testing.history import Event, assert_window_theorem

Apply = Callable[[Write, Bucket | None], Outcome]
Verb = Literal[
    "look",  # read the item
    "guess",  # take without having seen the item, in the hope that it is half empty
    "begin",  # take by what was last seen of the item, though it may have changed
    "take",  # take as one does after a refusal: what was seen is believed
    "prepare",  # the same, but the write is under way for a while
    "land",  # the held write arrives
    "resend",  # send the last write again
    "restamp",  # put other limits in force
    "adjust",  # charge or give back
    "split",  # make two items of one
    "merge",  # make one item of two
    "vanish",  # the store drops the item if it has expired
]
MOST_SHARDS = 8


@dataclass(frozen=True)
class Step:
    verb: Verb
    client: int = 0
    wait_ms: int = 0
    amounts_milli: Mapping[str, int] = field(default_factory=dict)
    limits: int = 0
    shard: int = 0


@dataclass(frozen=True)
class Sent:
    write: Write
    amounts_milli: Mapping[str, int]
    acquires: int
    planned_at_ms: int
    shard: int

    @property
    def admits(self) -> bool:
        return not isinstance(self.write, Adjust)


@dataclass
class Client:
    ahead_ms: int
    images: dict[int, Bucket] = field(default_factory=dict)
    held: Sent | None = None
    last: Sent | None = None


class Race:
    def __init__(
        self,
        limit_sets: Sequence[LimitSet],
        clocks_ms: Sequence[int] = (0, 0, 0),
        *,
        apply: Apply = apply,
        max_delay_ms: int = 0,
        ttl_seconds: int | None = None,
        metered: bool = False,
    ) -> None:
        self.limit_sets = limit_sets
        self.clients = [Client(ahead_ms) for ahead_ms in clocks_ms]
        self.apply = apply
        self.max_delay_ms = max_delay_ms
        self.ttl_seconds = ttl_seconds
        self.metered = metered
        self.now_ms = 1_000_000
        self.operations = 0
        self.items: dict[int, Bucket] = {}
        self.consumed_milli: dict[int, dict[str, int]] = {}
        self.acquires: dict[int, int] = {}
        self.history: list[Event] = []

    def run(self, steps: Iterable[Step]) -> Race:
        for step in steps:
            self.now_ms += step.wait_ms
            self._step(step, self.clients[step.client % len(self.clients)])
        return self

    def assert_window_theorem(self) -> None:
        """Where limits of one name differ, those that came first are the ones to hold."""
        clocks_ms = [client.ahead_ms for client in self.clients]
        skew_ms = max(clocks_ms) - min(clocks_ms) + self.max_delay_ms
        held = {x.name: x for limits in reversed(self.limit_sets) for x in limits.limits}
        assert_window_theorem({"the bucket": self.history}, held.values(), skew_ms=skew_ms)

    def _step(self, step: Step, client: Client) -> None:
        shard = step.shard % max(1, len(self.items))
        match step.verb:
            case "look":
                self._look(client, shard)
            case "guess" | "begin" | "take" | "restamp" | "adjust":
                self._send(client, self._plan(step, client, shard))
            case "prepare":
                client.held = self._plan(step, client, shard)
            case "land":
                held, client.held = client.held, None
                if held and self.now_ms - held.planned_at_ms <= self.max_delay_ms:
                    self._send(client, held)
            case "resend":
                self._resend(client)
            case "split":
                self._split(client, shard)
            case "merge":
                self._merge(client, shard)
            case "vanish":
                if shard in self.items and self.items[shard].is_expired(self.now_ms):
                    del self.items[shard], self.consumed_milli[shard], self.acquires[shard]
            case _:
                assert_never(step.verb)

    def _operation(self) -> str:
        self.operations += 1
        return f"operation-{self.operations}"

    def _look(self, client: Client, shard: int) -> None:
        if shard in self.items:
            client.images[shard] = self.items[shard]
        else:
            client.images.pop(shard, None)

    def _intent(self, step: Step) -> Intent:
        limits = self.limit_sets[step.limits % len(self.limit_sets)]
        takes_milli = {
            name: abs(amount_milli)
            for name, amount_milli in step.amounts_milli.items()
            if name in limits.by_name
        }
        if self.metered:
            takes_milli[WCU] = 1000
        return Intent(limits, takes_milli, 1, self.ttl_seconds, None, False, self.metered)

    def _plan(self, step: Step, client: Client, shard: int) -> Sent | None:
        operation, now_ms = self._operation(), self.now_ms + client.ahead_ms
        image = client.images.get(shard)
        if image is not None and image.generation == RETIRED:
            return None
        if step.verb == "adjust":
            generation = image.generation if image is not None and image.shard else None
            adjust = Adjust(operation, now_ms, step.amounts_milli, 0, generation=generation)
            return Sent(adjust, step.amounts_milli, 0, self.now_ms, shard)
        intent = self._intent(step)
        if step.verb == "restamp" and image is not None:
            restamp = plan_restamp(intent, image, operation, now_ms)
            return Sent(restamp, {}, 0, self.now_ms, shard)
        planned: Write | Short | Crowded
        if step.verb == "guess":
            planned = _guess(intent, operation, now_ms)
        elif step.verb == "begin":
            planned = plan_first(intent, image, operation, now_ms)
        elif image is not None:
            planned = plan(intent, image, operation, now_ms)
        else:
            # Only the first item is ever created; the others come from splits.
            planned = plan_create(intent, operation, now_ms)
            shard = 0
        if isinstance(planned, Short | Crowded):
            return None
        return Sent(planned, intent.takes_milli, 1, self.now_ms, shard)

    def _send(self, client: Client, sent: Sent | None) -> None:
        if sent is None:
            return
        before = self.items.get(sent.shard)
        match self.apply(sent.write, before):
            case Granted(bucket):
                client.images[sent.shard], client.last = bucket, sent
                if bucket is not before:
                    self._account(before, bucket, sent)
            case Refused(bucket):
                assert bucket is before
                client.images[sent.shard] = bucket
            case Absent():
                assert before is None
                client.images.pop(sent.shard, None)

    def _resend(self, client: Client) -> None:
        """A write is sent again only while the item still shows that it has landed."""
        last = client.last
        item = None if last is None else self.items.get(last.shard)
        if last is None or item is None or last.write.operation not in item.recent:
            return
        assert self.apply(last.write, item) == Granted(item), "a write landed twice"

    def _split(self, client: Client, shard: int) -> None:
        """Two writes in one step: both land or none."""
        image = client.images.get(shard)
        if image is None or image.shard_count >= MOST_SHARDS or image.generation == RETIRED:
            return
        lower, upper = split(image, self._operation())
        now_ms = self.now_ms + client.ahead_ms
        move = self.apply(Refill(self._operation(), now_ms, image, lower), self.items.get(shard))
        make = self.apply(Create(self._operation(), now_ms, upper), self.items.get(upper.shard))
        if isinstance(move, Granted) and isinstance(make, Granted):
            self.items |= {shard: move.bucket, upper.shard: make.bucket}
            self.consumed_milli[upper.shard] = dict.fromkeys(upper.cells, 0)
            self.acquires[upper.shard] = 0
            self._check(shard)
            self._check(upper.shard)
        self._look(client, shard)

    def _merge(self, client: Client, shard: int) -> None:
        """Two writes in one step: both land or none."""
        lower = client.images.get(shard)
        above = shard if lower is None else shard + lower.shard_count // 2
        upper = client.images.get(above)
        if lower is None or upper is None or above == shard or lower.part != upper.part:
            return
        now_ms = max(self.now_ms + client.ahead_ms, lower.refilled_at_ms, upper.refilled_at_ms)
        whole = merge(refill(lower, now_ms), refill(upper, now_ms))
        if whole is None or lower.generation == RETIRED:
            return
        gone = retire(upper, now_ms)
        grow = self.apply(Refill(self._operation(), now_ms, lower, whole), self.items.get(shard))
        leave = self.apply(Refill(self._operation(), now_ms, upper, gone), self.items.get(above))
        if isinstance(grow, Granted) and isinstance(leave, Granted):
            self.items |= {shard: grow.bucket, above: leave.bucket}
            self._check(shard)
        self._look(client, shard)
        self._look(client, above)

    def _account(self, before: Bucket | None, after: Bucket, sent: Sent) -> None:
        shard = sent.shard
        self.items[shard] = after
        self.acquires[shard] = self.acquires.get(shard, 0) + sent.acquires
        was_milli = self.consumed_milli.get(shard, {})
        now_milli = {name: was_milli.get(name, 0) for name in after.cells}
        for name, amount_milli in sent.amounts_milli.items():
            if name in now_milli:
                now_milli[name] += amount_milli
                if name != WCU:
                    self.history.append(Event(self.now_ms, name, amount_milli, sent.admits))
        self.consumed_milli[shard] = now_milli
        assert before is None or after.refilled_at_ms >= before.refilled_at_ms, "time went back"
        self._check(shard)
        if sent.admits:
            for name, cell in refill(after, sent.write.at_ms).cells.items():
                floor_milli = 0 if sent.amounts_milli.get(name) else _balance(before, name)
                assert cell.tokens_milli >= min(0, floor_milli), f"{name} is overdrawn"

    def _check(self, shard: int) -> None:
        item = self.items[shard]
        assert item.acquires == self.acquires[shard], "acquires are miscounted"
        for name, cell in item.cells.items():
            ceiling_milli = item.ceiling_milli(name)
            assert cell.tokens_milli <= ceiling_milli, f"{name} is above its ceiling"
            assert 0 <= cell.remainder < item.rate(name).period_ms, f"{name} has an odd remainder"
            full = item.shard_count == 1 and cell.tokens_milli == ceiling_milli
            assert not (full and cell.remainder), f"{name} overflows"
            assert cell.consumed_milli == self.consumed_milli[shard][name], f"{name} is miscounted"


def _guess(intent: Intent, operation: str, now_ms: int) -> Take:
    """For a bucket that was refilled in the time in which a limit is half filled, and has been
    used so much since that no limit has become full again."""
    since_ms = now_ms - min(int(500 * limit.seconds_to_fill) for limit in intent.limits.limits)
    roofs_milli = {}
    for name in intent.takes_milli.keys() & intent.limits.by_name.keys():
        capacity_milli, amount_milli, period_ms = cell_of(intent.limits.by_name[name]).rate
        gain = (now_ms - since_ms) * amount_milli
        roofs_milli[name] = capacity_milli - -(-gain // period_ms) - 1
    return Take(
        operation,
        now_ms,
        intent.limits.fingerprint,
        intent.takes_milli,
        intent.acquires,
        since_ms,
        None,
        intent.takes_milli,
        roofs_milli,
        unexpired=True,
    )


def _balance(bucket: Bucket | None, name: str) -> int:
    return bucket.cells[name].tokens_milli if bucket and name in bucket.cells else 0
