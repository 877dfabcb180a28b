"""Several clients on one bucket: old images, wrong clocks, writes that land late or twice.

A race is a list of steps, so that a failure found by chance is a tape that can be kept.
After each write the invariants of a bucket are checked; what moved is kept as a history.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, assert_never

from zae_limiter.core.composite import Bucket
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
from zae_limiter.core.writes import Absent, Adjust, Granted, Outcome, Refused, Write, apply
from zae_limiter.testing.history import Event, assert_window_theorem

Apply = Callable[[Write, Bucket | None], Outcome]
Verb = Literal[
    "look",  # read the bucket
    "speculate",  # take without having seen the bucket
    "begin",  # take by what was last seen of the bucket, though it may have changed
    "take",  # take as one does after a refusal: what was seen is believed
    "prepare",  # the same, but the write is under way for a while
    "land",  # the held write arrives
    "resend",  # send the last write again
    "restamp",  # put other limits in force
    "adjust",  # charge or give back
    "vanish",  # the store drops the bucket if it has expired
]


@dataclass(frozen=True)
class Step:
    verb: Verb
    client: int = 0
    wait_ms: int = 0
    amounts_milli: Mapping[str, int] = field(default_factory=dict)
    limits: int = 0


@dataclass(frozen=True)
class Sent:
    write: Write
    amounts_milli: Mapping[str, int]
    acquires: int
    planned_at_ms: int

    @property
    def admits(self) -> bool:
        return not isinstance(self.write, Adjust)


@dataclass
class Client:
    ahead_ms: int
    image: Bucket | None = None
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
    ) -> None:
        self.limit_sets = limit_sets
        self.clients = [Client(ahead_ms) for ahead_ms in clocks_ms]
        self.apply = apply
        self.max_delay_ms = max_delay_ms
        self.ttl_seconds = ttl_seconds
        self.now_ms = 1_000_000
        self.operations = 0
        self.bucket: Bucket | None = None
        self.consumed_milli: dict[str, int] = {}
        self.acquires = 0
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
        match step.verb:
            case "look":
                client.image = self.bucket
            case "speculate" | "begin" | "take" | "restamp" | "adjust":
                self._send(client, self._plan(step, client))
            case "prepare":
                client.held = self._plan(step, client)
            case "land":
                held, client.held = client.held, None
                if held and self.now_ms - held.planned_at_ms <= self.max_delay_ms:
                    self._send(client, held)
            case "resend":
                self._resend(client)
            case "vanish":
                if self.bucket is not None and self.bucket.is_expired(self.now_ms):
                    self._forget()
            case _:
                assert_never(step.verb)

    def _plan(self, step: Step, client: Client) -> Sent | None:
        now_ms = self.now_ms + client.ahead_ms
        self.operations += 1
        operation = f"operation-{self.operations}"
        limits = self.limit_sets[step.limits % len(self.limit_sets)]
        if step.verb == "adjust":
            return Sent(
                Adjust(operation, now_ms, step.amounts_milli, 0), step.amounts_milli, 0, self.now_ms
            )
        takes_milli = {
            name: abs(amount_milli)
            for name, amount_milli in step.amounts_milli.items()
            if name in limits.by_name
        }
        intent = Intent(limits, takes_milli, 1, self.ttl_seconds, None, False)
        if step.verb in ("speculate", "begin"):
            image = client.image if step.verb == "begin" else None
            write = plan_first(intent, image, operation, now_ms)
            return Sent(write, takes_milli, 1, self.now_ms)
        if client.image is None:
            planned: Write | Short | Crowded = plan_create(intent, operation, now_ms)
        elif step.verb == "restamp":
            restamp = plan_restamp(intent, client.image, operation, now_ms)
            return Sent(restamp, {}, 0, self.now_ms)
        else:
            planned = plan(intent, client.image, operation, now_ms)
        if isinstance(planned, Short | Crowded):
            return None
        return Sent(planned, takes_milli, 1, self.now_ms)

    def _send(self, client: Client, sent: Sent | None) -> None:
        if sent is None:
            return
        before = self.bucket
        match self.apply(sent.write, before):
            case Granted(bucket):
                client.image, client.last = bucket, sent
                if bucket is not before:
                    self._account(before, bucket, sent)
            case Refused(bucket):
                assert bucket is before
                client.image = bucket
            case Absent():
                assert before is None
                client.image = None

    def _resend(self, client: Client) -> None:
        """A write is sent again only while the bucket still shows that it has landed."""
        last, bucket = client.last, self.bucket
        if last is None or bucket is None or last.write.operation not in bucket.recent:
            return
        assert self.apply(last.write, bucket) == Granted(bucket), "a write landed twice"

    def _forget(self) -> None:
        self.bucket = None
        self.consumed_milli = {}
        self.acquires = 0

    def _account(self, before: Bucket | None, after: Bucket, sent: Sent) -> None:
        self.bucket = after
        self.acquires += sent.acquires
        kept = {name: self.consumed_milli.get(name, 0) for name in after.cells}
        for name, amount_milli in sent.amounts_milli.items():
            if name in kept:
                kept[name] += amount_milli
                self.history.append(Event(self.now_ms, name, amount_milli, sent.admits))
        self.consumed_milli = kept
        self._check(before, after, sent)

    def _check(self, before: Bucket | None, after: Bucket, sent: Sent) -> None:
        assert before is None or after.refilled_at_ms >= before.refilled_at_ms, "time went back"
        assert after.acquires == self.acquires, "acquires are miscounted"
        for name, cell in after.cells.items():
            ceiling_milli = after.ceiling_milli(name)
            assert cell.tokens_milli <= ceiling_milli, f"{name} is above its ceiling"
            assert 0 <= cell.remainder < after.period_ms(name), f"{name} has an odd remainder"
            assert cell.tokens_milli < ceiling_milli or not cell.remainder, f"{name} overflows"
            assert cell.consumed_milli == self.consumed_milli[name], f"{name} is miscounted"
            if sent.admits:
                floor_milli = 0 if sent.amounts_milli.get(name) else _balance(before, name)
                assert cell.tokens_milli >= min(0, floor_milli), f"{name} is overdrawn"


def _balance(bucket: Bucket | None, name: str) -> int:
    return bucket.cells[name].tokens_milli if bucket and name in bucket.cells else 0
