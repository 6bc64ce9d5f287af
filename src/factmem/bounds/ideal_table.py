"""A model of B bits that attains the bound of Theorem 7: a table of the likeliest answers.

It attains it exactly where M is a power of two, and otherwise up to part of one answer.

The message is one whole number below 2^B. It names the answers of as many questions as fit, the
likeliest first; what is left tells in which of several equal parts the next answer lies, and of all
others nothing is known. The loss is log2 of the number of answers that are still possible.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from factmem._core.errors import FactmemError

__all__ = ["IdealTable"]

_MOST_BITS = 10**8


@dataclass(frozen=True)
class IdealTable:
    """A table as a number.

    Args:
        message: all that is known of f*, from 0 to 2^B − 1.
        bits: B.
        outputs: M.
        facts: N.

    Examples:
        >>> table = IdealTable.of([5, 3, 6], outputs=8, bits=7)
        >>> [list(table.possible(x)) for x in range(3)]
        [[5], [3], [4, 5, 6, 7]]
    """

    message: int
    bits: int
    outputs: int
    facts: int

    @classmethod
    def of(cls, target: Sequence[int], outputs: int, bits: int) -> "IdealTable":
        """Writes f*, the answers of the questions in order of their chances, into B bits.

        Raises:
            FactmemError: an answer that is none of the M, or bits below 0 or above 10^8.
        """
        if not 0 <= bits <= _MOST_BITS:
            raise FactmemError(f"a table has from 0 to {_MOST_BITS} bits, not {bits}")
        if outputs < 1 or any(not 0 <= answer < outputs for answer in target):
            raise FactmemError(f"answers are whole numbers from 0 to {outputs - 1}")
        table = cls(0, bits, outputs, len(target))
        message = 0
        for answer in target[: table.known]:
            message = message * outputs + int(answer)
        if table.known < len(target):
            part = int(target[table.known]) * table.parts // outputs
            message = message * table.parts + part
        return cls(message, bits, outputs, len(target))

    @cached_property
    def known(self) -> int:
        """How many questions it answers: the most k with M^k ≤ 2^B, at most N."""
        if self.outputs == 1:
            return self.facts
        near = min(self.facts, int(self.bits / math.log2(self.outputs)) + 1)
        return near if self.outputs**near <= 2**self.bits else near - 1

    @cached_property
    def parts(self) -> int:
        """In how many parts the answers to the next question are told apart; 1 if there is none."""
        return 2**self.bits // self.outputs**self.known if self.known < self.facts else 1

    def possible(self, question: int) -> range:
        """The answers that are possible, all equally likely."""
        whole, part = divmod(self.message, self.parts)
        if question < self.known:
            answer = whole // self.outputs ** (self.known - 1 - question) % self.outputs
            return range(answer, answer + 1)
        if question > self.known:
            return range(self.outputs)
        # those with answer · parts // outputs = part
        first, after = (-(-place * self.outputs // self.parts) for place in (part, part + 1))
        return range(first, after)
