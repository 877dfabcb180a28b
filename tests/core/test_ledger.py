from __future__ import annotations

import pytest

from zae_limiter.core.bucket import BucketAddress
from zae_limiter.core.ledger import Entry, Ledger

KEY = BucketAddress("ns", "key", "gpt-4")
ORG = BucketAddress("ns", "org", "gpt-4")
SHARD = BucketAddress("ns", "key", "gpt-4", 3)


def ledger() -> Ledger:
    """A key and its organisation; the organisation limits requests only."""
    return Ledger(
        [
            Entry(KEY, frozenset({"rpm", "tpm"}), {"rpm": 1000, "tpm": 500_000}),
            Entry(ORG, frozenset({"rpm"}), {"rpm": 1000}),
        ]
    )


def test_a_refund_gives_back_exactly_what_was_taken_where_it_was_taken() -> None:
    assert list(ledger().refunds()) == [
        (KEY, {"rpm": -1000, "tpm": -500_000}, -1),
        (ORG, {"rpm": -1000}, -1),
    ]


def test_a_refund_ignores_corrections_that_were_never_written() -> None:
    lease = ledger()
    lease.correct({"tpm": 1500})
    assert list(lease.refunds()) == list(ledger().refunds())


def test_an_acquire_of_nothing_gives_its_acquire_back() -> None:
    lease = Ledger([Entry(KEY, frozenset({"rpm"}), {"rpm": 0})])
    assert list(lease.refunds()) == [(KEY, {}, -1)]


def test_where_nothing_was_taken_nothing_is_given_back() -> None:
    assert list(Ledger([Entry(KEY, frozenset({"rpm"}), {"rpm": 0}, acquires=0)]).refunds()) == []
    assert list(Ledger().refunds()) == []


def test_corrections_go_to_every_bucket_that_has_the_limit() -> None:
    lease = ledger()
    lease.correct({"tpm": 1500, "rpm": -1})
    assert list(lease.corrections()) == [
        (KEY, {"tpm": 1_500_000, "rpm": -1000}),
        (ORG, {"rpm": -1000}),
    ]


def test_corrections_add_up_and_those_that_cancel_are_not_written() -> None:
    lease = ledger()
    lease.correct({"tpm": 200, "rpm": 1})
    lease.correct({"tpm": -200, "rpm": 2})
    assert list(lease.corrections()) == [(KEY, {"rpm": 3000}), (ORG, {"rpm": 3000})]


def test_corrections_of_limits_that_no_bucket_has_are_not_written() -> None:
    lease = ledger()
    lease.correct({"rpd": 5})
    assert list(lease.corrections()) == []


def test_consumed_sums_all_buckets_in_whole_tokens_with_corrections() -> None:
    lease = ledger()
    assert lease.consumed == {"rpm": 2, "tpm": 500}
    lease.correct({"tpm": -100, "rpm": 3})
    assert lease.consumed == {"rpm": 8, "tpm": 400}
    assert Ledger().consumed == {}


def test_a_further_charge_is_added_where_the_lease_holds_already() -> None:
    lease = ledger()
    lease.absorb(Ledger([Entry(KEY, frozenset({"rpm", "tpm"}), {"tpm": 7000}, acquires=0)]))
    assert next(lease.refunds()) == (KEY, {"rpm": -1000, "tpm": -507_000}, -1)


def test_a_further_charge_elsewhere_is_a_new_entry() -> None:
    lease = ledger()
    lease.absorb(Ledger([Entry(SHARD, frozenset({"rpm"}), {"rpm": 2000}, acquires=0)]))
    assert list(lease.refunds())[2] == (SHARD, {"rpm": -2000}, 0)


def test_a_further_charge_under_new_limits_is_corrected_and_counted_too() -> None:
    lease = ledger()
    lease.absorb(Ledger([Entry(ORG, frozenset({"rpm", "rpd"}), {"rpd": 1000}, acquires=1)]))
    lease.correct({"rpd": 4})
    assert list(lease.corrections()) == [(ORG, {"rpd": 4000})]
    assert lease.consumed["rpd"] == 5
    assert list(lease.refunds())[1] == (ORG, {"rpm": -1000, "rpd": -1000}, -2)


@pytest.mark.parametrize(("charged", "returned_milli"), [(0, None), (1, -1000), (3, -2000)])
def test_of_a_limit_that_came_later_no_more_is_given_back_than_was_taken_of_it(
    charged: int, returned_milli: int | None
) -> None:
    """The organisation did not limit `tpm` when the lease was opened, so that none of its
    estimate was taken there."""
    lease = ledger()
    further = Entry(ORG, frozenset({"rpm", "tpm"}), {"rpm": 1000, "tpm": charged * 1000})
    lease.absorb(Ledger([further]))
    lease.correct({"tpm": -2})
    given_back = {ORG: {"tpm": returned_milli}} if returned_milli else {}
    assert dict(lease.corrections()) == {KEY: {"tpm": -2000}, **given_back}
    assert lease.consumed["tpm"] == 500 - 2 + charged + (returned_milli or 0) // 1000


def test_absorbing_leaves_the_other_ledger_alone() -> None:
    further = Ledger([Entry(KEY, frozenset({"tpm"}), {"tpm": 7000}, acquires=0)])
    lease = ledger()
    lease.absorb(further)
    assert further.entries[0].charged_milli == {"tpm": 7000}


class TestSeveralShards:
    """A request that no single shard could cover was taken from two of them."""

    HOME = BucketAddress("ns", "key", "gpt-4", 2)

    def ledger(self) -> Ledger:
        names = frozenset({"tpm"})
        return Ledger(
            [
                Entry(self.HOME, names, {"tpm": 300_000}),
                Entry(SHARD, names, {"tpm": 200_000}, acquires=0),
                Entry(ORG, names, {"tpm": 500_000}),
            ]
        )

    def test_each_gets_back_what_it_gave(self) -> None:
        assert list(self.ledger().refunds()) == [
            (self.HOME, {"tpm": -300_000}, -1),
            (SHARD, {"tpm": -200_000}, 0),
            (ORG, {"tpm": -500_000}, -1),
        ]

    def test_consumption_counts_a_correction_once_for_each_bucket(self) -> None:
        lease = self.ledger()
        assert lease.consumed == {"tpm": 1000}
        lease.correct({"tpm": 7})
        assert lease.consumed == {"tpm": 1014}

    @pytest.mark.parametrize(
        ("delta", "home_milli", "shard_milli"),
        [
            (50, 50_000, 0),
            (-50, 0, -50_000),
            (-200, 0, -200_000),
            (-450, -250_000, -200_000),
            (-600, -300_000, -200_000),
        ],
    )
    def test_a_correction_is_written_once_and_returns_no_more_than_was_taken(
        self, delta: int, home_milli: int, shard_milli: int
    ) -> None:
        lease = self.ledger()
        lease.correct({"tpm": delta})
        expected = {self.HOME: home_milli, SHARD: shard_milli, ORG: max(delta * 1000, -500_000)}
        written = {address: deltas_milli["tpm"] for address, deltas_milli in lease.corrections()}
        assert written == {address: milli for address, milli in expected.items() if milli}

    def test_a_shard_from_which_a_limit_was_not_taken_gets_nothing_of_it_back(self) -> None:
        names = frozenset({"rpm", "tpm"})
        lease = Ledger(
            [
                Entry(self.HOME, names, {"rpm": 1000, "tpm": 300_000}),
                Entry(SHARD, names, {"tpm": 200_000}, acquires=0),
            ]
        )
        lease.correct({"rpm": -1})
        assert list(lease.corrections()) == [(self.HOME, {"rpm": -1000})]

    def test_of_a_limit_that_came_later_each_shard_gets_back_what_was_taken_there(self) -> None:
        lease = self.ledger()
        both = frozenset({"rpm", "tpm"})
        lease.absorb(
            Ledger(
                [
                    Entry(SHARD, both, {"rpm": 2000}, acquires=0),
                    Entry(KEY, both, {"rpm": 3000}, acquires=0),
                ]
            )
        )
        lease.correct({"rpm": -9})
        assert dict(lease.corrections()) == {SHARD: {"rpm": -2000}, KEY: {"rpm": -3000}}
