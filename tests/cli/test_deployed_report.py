"""`deploy` and `upgrade` print the parts that a stack has, and no others."""

from __future__ import annotations

from typing import Any

import pytest

from zae_limiter.cli.stack import _print_deployed
from zae_limiter.cli.stack_place import StackPlace

CODE = {"size_bytes": 2048, "code_sha256": "0123456789abcdef", "status": "deployed"}
AGGREGATOR = "Lambda code: deployed (2 KB, sha256 0123456789ab)"
PROVISIONER = "Code for declared limits: deployed (2 KB, sha256 0123456789ab)"
WAITING = "The stream is not delivered to the Lambda yet; AWS is still at it."


@pytest.mark.parametrize(
    ("parts", "lines"),
    [
        ({}, []),
        ({"provisioner": CODE}, [PROVISIONER]),
        ({"lambda": {**CODE, "esm_ready": True}}, [AGGREGATOR]),
        (
            {"lambda": {**CODE, "esm_ready": False}, "provisioner": CODE},
            [AGGREGATOR, PROVISIONER, WAITING],
        ),
    ],
    ids=["table alone", "without aggregator", "without provisioner", "everything"],
)
def test_a_deployed_stack_is_told_by_its_parts(
    parts: dict[str, Any], lines: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    _print_deployed({"status": "unchanged", **parts}, StackPlace("my-app", None, None), False)
    head, *told, _ = capsys.readouterr().out.splitlines()
    assert (head, told) == ("Stack 'my-app': unchanged", lines)
