"""Token ids."""

import operator
from dataclasses import dataclass
from typing import Literal

from factmem._core.errors import FactmemError

__all__ = ["PromptForm", "Vocabulary"]

PromptForm = Literal["counts", "split", "tokens"]
"""How prompts are represented: token counts, `SplitPrompts`, or tokens in order."""


@dataclass(frozen=True)
class Vocabulary:
    """The tokens of the factual-recall task, in the order of their ids (paper, section 4).

        subjects | relations | noise | EOS | answers

    Answers never appear in prompts, so they come last: token counts of prompts cover only the
    first `prompt_tokens` ids.
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
                raise FactmemError(f"{name} must be at least 1, got {count}")

    @property
    def first_relation(self) -> int:
        """The id of the first relation."""
        return self.subjects

    @property
    def first_noise(self) -> int:
        """The id of the first noise token."""
        return self.subjects + self.relations

    @property
    def eos(self) -> int:
        """The id of the end-of-sequence token, the last token of every prompt."""
        return self.first_noise + self.noise

    @property
    def prompt_tokens(self) -> int:
        """The number of tokens that can appear in a prompt: all but the answers."""
        return self.eos + 1

    @property
    def first_answer(self) -> int:
        """The id of the first answer."""
        return self.prompt_tokens

    @property
    def size(self) -> int:
        """|V|, the number of tokens."""
        return self.prompt_tokens + self.answers
