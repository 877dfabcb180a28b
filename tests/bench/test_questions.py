from __future__ import annotations

from bench.questions import HEADER, QUESTIONS, prices


async def test_every_question_has_a_price() -> None:
    found = await prices(100)
    assert [price.question for price in found] == list(QUESTIONS)
    for price in found:
        assert price.row().count("|") == HEADER.splitlines()[0].count("|")
        assert price.alone_ms > 0
