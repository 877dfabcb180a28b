"""Sums of charges and corrections, and the parts that go back to each of their owners."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ...core.bucket import Bucket, covers, take_tokens
from ...core.ledger import Entry
from ...core.validation import WCU
from ..acquire.charge import ONE_WRITE_MILLI, Charge, Correction, LimitsFrom, Progress


def joint_progress(members: Sequence[Progress]) -> Progress:
    """All of these charges as one."""
    first = members[0]
    charges = [member.charge for member in members]
    takes_milli = _sum(charge.intent.takes_milli for charge in charges)
    if WCU in takes_milli:
        takes_milli[WCU] = ONE_WRITE_MILLI
    acquires = sum(charge.intent.acquires for charge in charges)
    is_stale = any(charge.limits_from is LimitsFrom.CACHE for charge in charges)
    joint = Charge(
        first.charge.home,
        first.charge.intent._replace(takes_milli=takes_milli, acquires=acquires),
        takes_milli,
        is_leaf=False,
        limits_from=LimitsFrom.CACHE if is_stale else LimitsFrom.STORE,
        speculative=first.charge.speculative,
        is_joint=True,
    )
    return Progress(joint, first.address, first.as_of_ms, members=members)


def share_out(joint: Progress, members: Sequence[Progress]) -> None:
    """Give each charge its own part of what was taken together."""
    for member in members:
        intent = member.charge.intent
        entry = member.charge.entry(joint.address, intent.takes_milli, intent.acquires)
        member.address, member.entries, member.shards = joint.address, [entry], joint.shards


def share_doubt(joint: Progress, members: Sequence[Progress]) -> None:
    """Let each charge give back its part of what landed, and find out about the rest itself."""
    for member in members:
        member.entries = [_part(member.charge, entry) for entry in joint.entries]
        member.sent = [(operation, _part(member.charge, e)) for operation, e in joint.sent]


def _part(charge: Charge, whole: Entry) -> Entry:
    return charge.entry(whole.address, charge.intent.takes_milli, charge.intent.acquires)


def fitting(members: Sequence[Progress], item: Bucket) -> list[Progress]:
    """The charges that the item can serve, in the order in which they came."""
    served = []
    for member in members:
        takes_milli = member.charge.intent.takes_milli
        asked_milli = {name: amount for name, amount in takes_milli.items() if name != WCU}
        if covers(item, asked_milli):
            item = take_tokens(item, asked_milli, 0)
            served.append(member)
    return served


def sum_corrections(corrections: Sequence[Correction]) -> Correction:
    """All of these corrections as one."""
    acquires = sum(correction.acquires for correction in corrections)
    by_limits = {i.limits.fingerprint: i for each in corrections for i in each.intents}
    deltas_milli = _sum(each.deltas_milli for each in corrections)
    return Correction(deltas_milli, acquires, tuple(by_limits.values()))


def _sum(vectors: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total: dict[str, int] = {}
    for vector in vectors:
        for name, amount in vector.items():
            total[name] = total.get(name, 0) + amount
    return total
