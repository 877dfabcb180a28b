from __future__ import annotations

from dataclasses import dataclass

import pytest

from zae_limiter import StorageUnavailable
from zae_limiter.core.bucket import BucketAddress
from zae_limiter.flows.coalesce import queue as queue_module
from zae_limiter.flows.coalesce.queue import Stage, Ticket, WriteQueues

HERE = BucketAddress("ns", "key-1", "gpt-4")
THERE = BucketAddress("ns", "key-2", "gpt-4")


@dataclass
class Bell:
    """A signal that counts how often it was rung. `works`: someone is there to hear it."""

    works: bool = True
    rung: int = 0

    def set(self) -> bool:
        self.rung += 1
        return self.works

    async def wait(self, seconds: float | None, *, for_store: bool = False) -> bool:
        return self.rung > 0

    async def hold(self) -> None: ...


def ticket(bell: Bell, group: str = "charges", *, is_owed: bool = True) -> Ticket:
    return Ticket(bell, None, group, is_owed)


def queue_up(queues: WriteQueues, count: int) -> tuple[list[Bell], list[Ticket]]:
    bells = [Bell() for _ in range(count)]
    tickets = [ticket(bell) for bell in bells]
    for each in tickets:
        queues.join(HERE, each)
    return bells, tickets


def test_tickets_lead_in_the_order_in_which_they_came() -> None:
    queues, first = WriteQueues(), object()
    assert queues.start(HERE, first)
    bells, tickets = queue_up(queues, 3)
    owner: object = first
    for following, bell in zip(tickets, bells, strict=True):
        assert following.stage is Stage.WAITING
        queues.leave(HERE, owner)
        assert (following.stage, bell.rung) == (Stage.LEADING, 1)
        owner = following
    queues.leave(HERE, owner)
    assert queues.start(HERE, first)


def test_a_ticket_leads_at_once_if_the_item_has_come_free() -> None:
    queues, bell = WriteQueues(), Bell()
    joined = ticket(bell)
    queues.join(HERE, joined)
    assert (joined.stage, bell.rung) == (Stage.LEADING, 0)
    assert not queues.start(HERE, object())


def test_leaving_an_item_that_was_never_taken_wakes_no_ticket() -> None:
    queues, first = WriteQueues(), object()
    queues.start(HERE, first)
    (bell, *_), (leader, waiting) = queue_up(queues, 2)
    queues.leave(HERE, first)
    for _ in range(5):
        queues.leave(HERE, object())
        assert not queues.start(HERE, object())
    assert bell.rung == 1
    assert (leader.leads, waiting.leads) == (True, False)


def test_a_ticket_that_gives_up_leaves_the_others_in_their_order() -> None:
    queues, first = WriteQueues(), ticket(Bell())
    queues.start(HERE, first)
    _, (one, two, three) = queue_up(queues, 3)
    assert queues.give_up(HERE, two)
    batch = [first]
    queues.form_batch(HERE, batch)
    assert batch == [first, one, three]
    assert not queues.give_up(HERE, one)
    queues.leave(HERE, first)
    assert queues.start(HERE, first)


def test_a_batch_takes_along_the_tickets_of_its_group_only() -> None:
    queues, first = WriteQueues(), ticket(Bell(), "charges")
    queues.start(HERE, first)
    others = [ticket(Bell(), group) for group in ("charges", "corrections", "charges")]
    for each in others:
        queues.join(HERE, each)
    batch = [first]
    queues.form_batch(HERE, batch)
    assert batch == [first, others[0], others[2]]
    assert [each.stage for each in others] == [Stage.FOLLOWING, Stage.WAITING, Stage.FOLLOWING]
    queues.leave(HERE, first)
    assert others[1].leads


def test_a_ticket_whose_owner_cannot_be_woken_is_passed_over() -> None:
    queues, first = WriteQueues(), object()
    queues.start(HERE, first)
    bells, (gone, following) = queue_up(queues, 2)
    bells[0].works = False
    queues.leave(HERE, first)
    assert (gone.stage, following.stage) == (Stage.UNREACHABLE, Stage.LEADING)


def test_write_queues_of_different_items_are_independent() -> None:
    queues, first = WriteQueues(), object()
    assert queues.start(HERE, first)
    assert queues.start(THERE, first)
    _, (waiting,) = queue_up(queues, 1)
    queues.leave(THERE, first)
    assert not waiting.leads


def test_charges_are_turned_away_from_a_queue_that_is_too_long_and_corrections_are_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(queue_module, "MAX_WAITING", 2)
    queues = WriteQueues()
    queues.start(HERE, object())
    queue_up(queues, 2)
    with pytest.raises(StorageUnavailable):
        queues.join(HERE, ticket(Bell(), is_owed=False))
    queue_up(queues, 1)
