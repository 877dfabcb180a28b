"""Receipts: a compare-and-set that may carry bucket writes along."""

from __future__ import annotations

from ...core.bucket import BucketAddress
from ...core.limit import MILLI
from ...core.planner import Intent
from ...core.receipts import (
    Receipt,
    ReceiptEntry,
    ReceiptKey,
    ReceiptSwap,
    StaleReceipt,
    joined,
    settled,
)
from ...core.writes import Create, Granted, Refused, Write
from ...ports.repository_protocol import NamespaceRecord
from .buckets import existing
from .trial import TRIAL_LIMITS, Trial, expect, same

_HOUR_MS = 3_600_000


def _receipt(trial: Trial, name: str = "KEY#größer ≥ 10 €", milli: int = MILLI) -> Receipt:
    lease_id = trial.io.operation_id()
    intent = Intent(TRIAL_LIMITS, {}, 0, 60, "org", True)
    addresses = [trial.address(), trial.address("org", shard=3)]
    return Receipt(
        ReceiptKey(trial.namespace_id, name),
        trial.io.operation_id(),
        lease_id,
        "key-1",
        "gpt-4",
        {"rpm": milli, "tpm": 10**18},
        tuple(ReceiptEntry(address, {"rpm": milli}, 1, (intent,)) for address in addresses),
        (lease_id,),
        trial.now_ms + _HOUR_MS,
        trial.now_ms + _HOUR_MS // 2,
        frozenset({lease_id}),
    )


async def _charged(trial: Trial, receipt: Receipt) -> list[tuple[BucketAddress, Write]]:
    """Make two buckets, keep the receipt, and return two takings of one token each."""
    addresses = [trial.address(entity_id) for entity_id in ("key-1", "org")]
    writes: list[tuple[BucketAddress, Create]] = [(a, trial.create()) for a in addresses]
    outcomes = await trial.store.receipts.swap(ReceiptSwap(None, receipt), writes)
    expect(isinstance(outcomes, list), f"A new receipt was refused: {outcomes}")
    return [(address, trial.take(rpm=MILLI)) for address in addresses]


async def check_a_receipt_is_read_back_as_it_was_kept(trial: Trial) -> None:
    receipts = trial.store.receipts
    receipt = _receipt(trial)
    same(await receipts.read(receipt.key), None, "a receipt that was never kept")
    same(await receipts.swap(ReceiptSwap(None, receipt)), [], "the answer to a swap")
    same(await receipts.read(receipt.key), receipt, "the receipt")
    other = trial.other_tenant()
    key = receipt.key._replace(namespace_id=other.namespace_id)
    same(await receipts.read(key), None, "the receipt of another namespace")
    ending = settled(receipt, receipt.lease_id, "ender", trial.io.operation_id())
    same(await receipts.swap(ReceiptSwap(receipt, ending)), [], "the answer to a swap")
    same(await receipts.read(receipt.key), ending, "the receipt that ended")


async def check_a_stale_swap_changes_nothing_and_answers_with_the_receipt(trial: Trial) -> None:
    receipts = trial.store.receipts
    receipt = _receipt(trial)
    later = joined(receipt, "another", trial.io.operation_id())
    stale = await receipts.swap(ReceiptSwap(receipt, later))
    same(stale, StaleReceipt(None), "the answer to a swap of a receipt that is not there")
    await receipts.swap(ReceiptSwap(None, receipt))
    again = receipt._replace(revision=trial.io.operation_id())
    stale = await receipts.swap(ReceiptSwap(None, again))
    same(stale, StaleReceipt(receipt), "the answer to a second receipt with a key")
    await receipts.swap(ReceiptSwap(receipt, later))
    stale = await receipts.swap(ReceiptSwap(receipt, again))
    same(stale, StaleReceipt(later), "the answer to a swap of an old revision")
    same(await receipts.read(receipt.key), later, "the receipt after stale swaps")


async def check_a_receipt_and_its_bucket_writes_are_kept_together(trial: Trial) -> None:
    receipts = trial.store.receipts
    receipt = _receipt(trial)
    takings = await _charged(trial, receipt)
    more = receipt._replace(revision=trial.io.operation_id())
    outcomes = await receipts.swap(ReceiptSwap(receipt, more), takings)
    if not isinstance(outcomes, list):
        raise AssertionError(f"A swap with writes was refused: {outcomes}")
    for (address, _), outcome in zip(takings, outcomes, strict=True):
        same(outcome, Granted(await existing(trial, address)), "an outcome beside a receipt")
    same(await receipts.read(receipt.key), more, "the receipt beside granted writes")


async def check_a_refused_write_keeps_no_receipt(trial: Trial) -> None:
    receipts = trial.store.receipts
    receipt = _receipt(trial)
    (own, taking), (org, _) = await _charged(trial, receipt)
    held = [await existing(trial, address) for address in (own, org)]
    too_much = trial.take(rpm=10**9)
    more = receipt._replace(revision=trial.io.operation_id())
    outcomes = await receipts.swap(ReceiptSwap(receipt, more), [(own, taking), (org, too_much)])
    if not isinstance(outcomes, list):
        raise AssertionError(f"A receipt as it was seen was refused: {outcomes}")
    expect(isinstance(outcomes[0], Granted), f"A write that could apply: {outcomes[0]}")
    same(outcomes[1], Refused(held[1]), "the outcome of the write that was refused")
    same(await receipts.read(receipt.key), receipt, "the receipt beside a refused write")
    same(await existing(trial, own), held[0], "the bucket beside a refused write")


async def check_a_stale_receipt_keeps_all_writes_back(trial: Trial) -> None:
    receipts = trial.store.receipts
    receipt = _receipt(trial)
    takings = await _charged(trial, receipt)
    held = [await existing(trial, address) for address, _ in takings]
    again = receipt._replace(revision=trial.io.operation_id())
    stale = await receipts.swap(ReceiptSwap(None, again), takings)
    same(stale, StaleReceipt(receipt), "the answer to a stale swap with writes")
    found = [await existing(trial, address) for address, _ in takings]
    same(found, held, "the buckets beside a stale receipt")


async def check_one_of_many_swaps_at_once_wins(trial: Trial) -> None:
    receipts = trial.store.receipts
    receipt = _receipt(trial)
    takings = await _charged(trial, receipt)
    swaps = [
        receipts.swap(
            ReceiptSwap(receipt, receipt._replace(revision=trial.io.operation_id())),
            [(a, w._replace(operation=trial.io.operation_id())) for a, w in takings],
        )
        for _ in range(4)
    ]
    answers = await trial.at_once(swaps)
    won = [answer for answer in answers if isinstance(answer, list)]
    same(len(won), 1, "swaps of one revision that took effect")
    for address, _ in takings:
        consumed_milli = (await existing(trial, address)).cells["rpm"].consumed_milli
        same(consumed_milli, MILLI, "tokens taken beside swaps at once")


async def check_a_purge_deletes_the_receipts_of_its_namespace(trial: Trial) -> None:
    namespaces, receipts = trial.store.namespaces, trial.store.receipts
    name = trial.name("purged")
    record = NamespaceRecord(name, trial.namespace_id, "2024-01-01T00:00:00.000Z")
    await namespaces.register(record)
    kept = [_receipt(trial, f"LEASE#{number}") for number in range(3)]
    foreign = _receipt(trial.other_tenant(), "LEASE#0")
    for receipt in (*kept, foreign):
        await receipts.swap(ReceiptSwap(None, receipt))
    await namespaces.delete(name, "2024-01-02T00:00:00.000Z")
    same(await namespaces.purge(trial.namespace_id), 3, "records that a purge counts")
    for receipt in kept:
        same(await receipts.read(receipt.key), None, "a receipt after a purge")
    same(await receipts.read(foreign.key), foreign, "the receipt of another namespace")
