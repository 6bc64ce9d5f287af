"""A model of B bits that attains the minimum loss: a table of the likeliest answers.

It attains the bound exactly if M is a power of two, and otherwise up to a fraction of one answer.

The message is one integer below 2^B. It holds the answers of as many questions as fit, the
likeliest first. The remaining bits say in which of several equal parts the next answer lies; about
all other questions nothing is known. The loss is log2 of the number of
answers that are still possible.

Reference: Theorem 7.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from factmem._core.errors import FactmemError

__all__ = ["IdealTable"]

_MAX_BITS = 10**8


@dataclass(frozen=True)
class IdealTable:
    """A table of answers, encoded as one integer.

    Args:
        message: the encoded answers, from 0 to 2^B − 1.
        bits: B.
        outputs: M, the number of possible answers.
        facts: N, the number of questions.

    Examples:
        >>> table = IdealTable.encode([5, 3, 6], outputs=8, bits=7)
        >>> [list(table.possible_answers(x)) for x in range(3)]
        [[5], [3], [4, 5, 6, 7]]
    """

    message: int
    bits: int
    outputs: int
    facts: int

    @classmethod
    def encode(cls, target: Sequence[int], outputs: int, bits: int) -> "IdealTable":
        """Encode f*, the answers in decreasing order of their questions' probabilities, in B bits.

        Raises:
            FactmemError: an answer or the number of bits is out of range.
        """
        if not 0 <= bits <= _MAX_BITS:
            raise FactmemError(f"bits must be between 0 and {_MAX_BITS}, got {bits}")
        if outputs < 1:
            raise FactmemError(f"outputs must be at least 1, got {outputs}")
        for answer in target:
            if not 0 <= answer < outputs:
                raise FactmemError(f"answers must be between 0 and {outputs - 1}, got {answer}")
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
        """The number of questions with a known answer: the largest k ≤ N with M^k ≤ 2^B."""
        if self.outputs == 1:
            return self.facts
        estimate = min(self.facts, int(self.bits / math.log2(self.outputs)) + 1)
        return estimate if self.outputs**estimate <= 2**self.bits else estimate - 1

    @cached_property
    def parts(self) -> int:
        """The number of parts that the message distinguishes for the next question's answer."""
        return 2**self.bits // self.outputs**self.known if self.known < self.facts else 1

    def possible_answers(self, question: int) -> range:
        """Return the answers that are still possible; they are equally likely."""
        answers, part = divmod(self.message, self.parts)
        if question < self.known:
            answer = answers // self.outputs ** (self.known - 1 - question) % self.outputs
            return range(answer, answer + 1)
        if question > self.known:
            return range(self.outputs)
        # the answers with answer · parts // outputs = part
        first, end = (-(-number * self.outputs // self.parts) for number in (part, part + 1))
        return range(first, end)
