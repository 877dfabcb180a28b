"""The attacks that `make attack` runs, each with the tests that carry it out."""

from __future__ import annotations

from typing import NamedTuple


class Attack(NamedTuple):
    """An attack has a title, and tests that must hold however often they are run."""

    title: str
    tests: tuple[str, ...]


ATTACKS = (
    Attack(
        "tokens of a parent, held in vain",
        (
            "tests/attacks/test_raiders.py",
            "tests/flows/test_innocent_refusals.py",
            "tests/flows/test_looks.py",
        ),
    ),
    Attack(
        "items of a split bucket lost, restored, deleted, expired, in debt",
        (
            "tests/flows/test_partition.py",
            "tests/flows/test_generations.py",
            "tests/dynamodb/test_split_buckets.py",
        ),
    ),
    Attack(
        "wrong clocks and damaged times",
        ("tests/flows/test_wrong_clocks.py", "tests/processes/test_wrong_clocks.py"),
    ),
    Attack("stores and namespaces made anew", ("tests/flows/test_registration.py",)),
    Attack("thousands of waiters", ("tests/flows/test_waiting.py",)),
    Attack("leases that give back too much", ("tests/flows/test_lease_bounds.py",)),
    Attack(
        "silent, dripping, locked, resetting, failing and throttling stores",
        ("tests/dynamodb/test_deadlines.py", "tests/flows/test_silence.py"),
    ),
    Attack(
        "late copies and lost answers",
        (
            "tests/dynamodb/test_late_copies.py",
            "tests/dynamodb/test_faults.py",
            "tests/dynamodb/test_doubt.py",
        ),
    ),
    Attack(
        "many and forgotten limits",
        ("tests/flows/test_dormant_limits.py", "tests/flows/test_bad_input.py"),
    ),
    Attack(
        "records that other versions wrote",
        ("tests/dynamodb/test_compatibility.py", "tests/dynamodb/test_recorded_tables.py"),
    ),
    Attack(
        "leases that outlive their buckets",
        ("tests/flows/test_outlived_buckets.py", "tests/dynamodb/test_outlived_items.py"),
    ),
    Attack(
        "cancellations at every await",
        (
            "tests/attacks/test_cancellations.py",
            "tests/dynamodb/test_cancellation.py",
            "tests/flows/test_interrupts.py",
        ),
    ),
    Attack("processes that are killed", ("tests/processes/test_sqlite.py",)),
    Attack(
        "answers of a server that make no sense",
        ("tests/wire", "tests/dynamodb/test_configuration_errors.py"),
    ),
)
