from __future__ import annotations

import signal

import pytest
from bench.interrupts import Interrupts


def interrupt() -> None:
    signal.raise_signal(signal.SIGINT)


def test_an_interrupt_is_heard_while_something_is_waited_for() -> None:
    with Interrupts() as interrupts, pytest.raises(KeyboardInterrupt), interrupts.listening():
        interrupt()


def test_an_interrupt_is_kept_until_something_is_waited_for() -> None:
    with Interrupts() as interrupts:
        interrupt()
        with pytest.raises(KeyboardInterrupt), interrupts.listening():
            raise AssertionError("it came too late")


def test_nobody_is_interrupted_while_tidying_up() -> None:
    with Interrupts() as interrupts:
        with pytest.raises(KeyboardInterrupt), interrupts.listening():
            interrupt()
        interrupt()


def test_interrupts_are_as_before_afterwards() -> None:
    before = signal.getsignal(signal.SIGINT)
    with Interrupts():
        assert signal.getsignal(signal.SIGINT) != before
    assert signal.getsignal(signal.SIGINT) == before
