"""Each promise names tests that try to break it, and these exist."""

from __future__ import annotations

import re

from tests.docs.test_examples import ROOT

PAGE = (ROOT / "docs" / "promises.md").read_text(encoding="utf-8")
PROMISES = re.split(r"^\d+\. ", PAGE.split("## How they are tested")[0], flags=re.M)[1:]
_TESTS = re.compile(r"`(tests/[\w/.]+)`")


def test_each_promise_names_a_test() -> None:
    assert len(PROMISES) >= 15
    assert not [promise.split("\n")[0] for promise in PROMISES if not _TESTS.search(promise)]


def test_the_tests_of_promises_exist() -> None:
    assert not [name for name in _TESTS.findall(PAGE) if not (ROOT / name).exists()]
