"""Bucket items that are shards: splits, merges and generations."""

from __future__ import annotations

from ...core.bucket import BucketAddress, merge, retire, split
from ...core.limit import MILLI
from ...core.shards import Part
from ...core.writes import Create, Granted, Refill, Refused, Write
from .buckets import agreed, existing, together
from .trial import Trial, expect, same


async def check_a_split_keeps_every_token(trial: Trial) -> None:
    lower, upper = trial.address(), trial.address(shard=1)
    await agreed(trial, lower, trial.create({"rpm": 40 * MILLI + 1}))
    image = await trial.bucket(lower)
    if image is None:
        raise AssertionError("the bucket that was created cannot be read")
    kept, given = split(image, trial.io.operation_id())
    refill = Refill(trial.io.operation_id(), trial.now_ms, image, kept)
    create = Create(trial.io.operation_id(), trial.now_ms, given)
    await agreed(trial, lower, trial.take(rpm=MILLI))
    same(await together(trial, (lower, refill), (upper, create)), 2, "parts of a split")
    found = await trial.store.buckets.read([lower, upper])
    tokens_milli = sum(bucket.cells["rpm"].tokens_milli for bucket in found.values())
    same(tokens_milli, image.cells["rpm"].tokens_milli - MILLI, "tokens after a split")
    same([bucket.shard_count for bucket in found.values()], [2, 2], "shard counts")


async def check_a_merge_keeps_every_token_and_retires_the_other_item(trial: Trial) -> None:
    lower, upper = trial.address(), trial.address(shard=1)
    await agreed(trial, lower, trial.create({"rpm": 40 * MILLI + 1}))
    whole = await existing(trial, lower)
    kept, given = split(whole, trial.io.operation_id())
    parts = Refill(trial.io.operation_id(), trial.now_ms, whole, kept)
    create = Create(trial.io.operation_id(), trial.now_ms, given)
    same(await together(trial, (lower, parts), (upper, create)), 2, "parts of a split")
    items = [await existing(trial, address) for address in (lower, upper)]
    merged = merge(items[0], items[1])
    if merged is None:
        raise AssertionError("the parts of a split do not fit together")
    same(merged.cells, whole.cells, "cells after a split and a merge")
    retired = retire(items[1], trial.now_ms // 1000 + 60)
    back = [
        (lower, Refill(trial.io.operation_id(), trial.now_ms, items[0], merged)),
        (upper, Refill(trial.io.operation_id(), trial.now_ms, items[1], retired)),
    ]
    await agreed(trial, upper, trial.adjust(rpm=-1))
    items[1] = await existing(trial, upper)
    outcomes = await trial.store.buckets.write_all(back)
    same(outcomes[1], Refused(items[1]), "An item was merged as it had been before")
    same(await existing(trial, lower), items[0], "Half of a merge was carried out")
    retired = retire(items[1], trial.now_ms // 1000 + 60)
    back[1] = (upper, Refill(trial.io.operation_id(), trial.now_ms, items[1], retired))
    same(await together(trial, *back), 2, "parts of a merge")
    same((await existing(trial, lower)).part, Part(1, ""), "the part of the merged item")


async def check_a_shard_of_another_generation_holds_nothing(trial: Trial) -> None:
    address = trial.address(shard=1)
    create = trial.create()
    old, new = (
        create.bucket._replace(shard=1, shard_count=2, generation=generation)
        for generation in ("old", "new")
    )
    await agreed(trial, address, create._replace(bucket=old))
    taking = trial.take(rpm=MILLI)._replace(shard_count=2)
    correction = trial.adjust(rpm=MILLI)
    for generation, outcome in (("new", Refused), ("", Refused), ("old", Granted)):
        take = taking._replace(generation=generation, operation=trial.io.operation_id())
        adjust = correction._replace(generation=generation, operation=trial.io.operation_id())
        await _expect_outcome(trial, address, take, outcome)
        await _expect_outcome(trial, address, adjust, outcome)
    unstamped = new._replace(generation="")
    for item, outcome in ((old, Refused), (new, Granted), (new, Refused), (unstamped, Granted)):
        create = Create(trial.io.operation_id(), trial.now_ms, item)
        await _expect_outcome(trial, address, create, outcome)
    again = Create(trial.io.operation_id(), trial.now_ms, unstamped)
    await _expect_outcome(trial, address, again, Refused)


async def _expect_outcome(
    trial: Trial, address: BucketAddress, write: Write, wanted: type[Granted] | type[Refused]
) -> None:
    found = await agreed(trial, address, write)
    expect(isinstance(found, wanted), f"{write} was answered by {found}")
