"""Few choices that hold every pair of values of any two settings."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

Choice = dict[str, Any]


def all_pairs(settings: Mapping[str, Sequence[Any]]) -> Iterator[Choice]:
    """Yield choices, each with as many new pairs as a greedy search finds."""
    names = list(settings)
    missing = {
        ((a, i), (b, j))
        for a, b in itertools.combinations(names, 2)
        for i in range(len(settings[a]))
        for j in range(len(settings[b]))
    }
    while missing:
        first, second = min(missing)
        chosen = dict([first, second])
        for name in names:
            if name not in chosen:
                chosen[name] = max(
                    range(len(settings[name])),
                    key=lambda i, n=name: len(_pairs({**chosen, n: i}, names) & missing),  # type: ignore[misc]
                )
        missing -= _pairs(chosen, names)
        yield {name: settings[name][index] for name, index in chosen.items()}


def _pairs(chosen: Mapping[str, int], names: Sequence[str]) -> set[tuple[Any, Any]]:
    known = [(name, chosen[name]) for name in names if name in chosen]
    return set(itertools.combinations(known, 2))
