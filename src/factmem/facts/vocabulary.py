"""Which token has which number."""

import operator
from dataclasses import dataclass

from factmem._core.errors import FactmemError

__all__ = ["Vocabulary"]


@dataclass(frozen=True)
class Vocabulary:
    """The tokens of the factual-recall task, in the order of their ids (paper, section 4).

        subjects | relations | noise | EOS | answers

    Answers never stand in a prompt, so they come last, and a prompt is counted over the first
    `prompt_tokens` ids alone. EOS is the last token that a prompt can hold.
    """

    subjects: int
    relations: int
    noise: int
    answers: int

    def __post_init__(self) -> None:
        for name in ("subjects", "relations", "noise", "answers"):
            count = operator.index(getattr(self, name))
            object.__setattr__(self, name, count)
            if count < 1:
                raise FactmemError(f"a vocabulary needs {name}: at least 1, not {count}")

    @property
    def first_relation(self) -> int:
        """Id of the first relation."""
        return self.subjects

    @property
    def first_noise(self) -> int:
        """Id of the first noise token."""
        return self.subjects + self.relations

    @property
    def eos(self) -> int:
        """Id of the end-of-sequence token, which ends every prompt and asks the question."""
        return self.first_noise + self.noise

    @property
    def prompt_tokens(self) -> int:
        """How many tokens can stand in a prompt: everything but the answers."""
        return self.eos + 1

    @property
    def first_answer(self) -> int:
        """Id of the first answer."""
        return self.prompt_tokens

    @property
    def size(self) -> int:
        """|V|: all tokens."""
        return self.prompt_tokens + self.answers
