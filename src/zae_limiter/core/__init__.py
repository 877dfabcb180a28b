"""The domain, pure: integers and frozen values. No clock, no random source, no I/O, no async.

Read in this order:

    limit        a limit as users write it, and the fingerprint of a set of limits
    rates        how a limit gains tokens: the only rate arithmetic
    bucket       all limits of one bucket item as one value, and its pure functions
    writes       the five ways in which a bucket item may change, as values
    apply        the reference semantics: what each write does to a bucket
    planner      which write comes next, given an image of the bucket
    judge        does a request fit, and if not, when will it
    ledger       what a lease took, and the corrections that follow from it

Beside these: `shards` (exact halves), `idempotency` (operation ids), `hierarchy` (which
configuration level decides), `windows` and `usage`, `audit`, `validation`, `models` (records that
users see) and `exceptions`.
"""
