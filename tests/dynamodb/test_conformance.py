"""The store keeps the contracts of the ports."""

from __future__ import annotations

import pytest

from tests.support.dynamodb import new_name, open_store
from tests.support.servers.processes import Server
from zae_limiter.testing import CHECKS, DRIVERS, Check, run_check

# Usage is counted by the aggregator, not by the write itself.
COUNTED_LATER = "usage"
TABLE = new_name()


@pytest.mark.parametrize("driver", DRIVERS)
@pytest.mark.parametrize("check", [c for c in CHECKS if c.role != COUNTED_LATER], ids=str)
def test_the_dynamodb_store_conforms(check: Check, driver: str, dynamodb: Server) -> None:
    run_check(check, lambda io: open_store(dynamodb, TABLE, io), driver)
