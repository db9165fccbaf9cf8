"""The generator of the module, which gives seeds to functions that draw random numbers."""

from __future__ import annotations

import operator
import secrets
import threading

from ._core import ArgumentError

_BITS = (1 << 64) - 1


class _Generator:
    """SplitMix64: numbers of 64 bits that do not repeat before 2^64 of them were drawn."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._state = secrets.randbits(64)

    def restart(self, seed: int) -> None:
        with self._lock:
            self._state = seed & _BITS

    def next(self) -> int:
        with self._lock:
            self._state = number = (self._state + 0x9E3779B97F4A7C15) & _BITS
        number = ((number ^ (number >> 30)) * 0xBF58476D1CE4E5B9) & _BITS
        number = ((number ^ (number >> 27)) * 0x94D049BB133111EB) & _BITS
        return number ^ (number >> 31)


_generator = _Generator()


def manual_seed(seed: int) -> None:
    """Restarts the generator of the module: the same seed, the same random numbers from here on. Without it each process
    has other ones. `seed`: -2^63 ... 2^64 - 1, others raise ArgumentError.

    There is one generator for all threads, and each draw is a step of it that no other thread gets. Which thread gets
    which step is up to their order: where several draw and results are to be the same each time, give each call a seed."""
    number = operator.index(seed)
    if not -(1 << 63) <= number <= _BITS:
        raise ArgumentError(f"manual_seed: seed is {number}, expected -2^63 ... 2^64 - 1")
    _generator.restart(number)


def next_seed() -> int:
    """Draws a number of 64 bits from the generator of the module: a seed for a dropout and for its gradient."""
    return _generator.next()
