"""Damaged records: the bounds of numbers that can be right, and lists that leave a record out."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from ..core.exceptions import StoredDataError, StoredDataWarning

R = TypeVar("R")
T = TypeVar("T")

# Beyond any debt or counter that comes about by use. A larger number would exceed what a store or
# a float can hold, in the midst of some later computation.
MAX_STORED_NUMBER = 10**30


def check_stored_numbers(numbers: Iterable[int]) -> None:
    """Raise `ValueError` if a number is too large to be anything but damage."""
    for number in numbers:
        if not -MAX_STORED_NUMBER <= number <= MAX_STORED_NUMBER:
            raise ValueError(f"a number has {_digits(number)} digits, which is more than any use")


def _digits(number: int) -> int:
    # A long number cannot be printed, so its digits are reckoned: a bit is 0.301 of a digit.
    return number.bit_length() * 301 // 1000 + 1


def readable(decode: Callable[[R], T], records: Iterable[R]) -> Iterator[T]:
    """Yield the records of a list that can be decoded, and warn of each other one."""
    for record in records:
        try:
            yield decode(record)
        except StoredDataError as error:
            warnings.warn(StoredDataWarning(error), stacklevel=3)
