"""The fastest form of prompts for a vocabulary: token counts, split prompts, or tokens.

| form | attention of a batch | cost grows with |
|---|---|---|
| counts | `attend`: one product with the counts of all tokens | subjects, relations and noise |
| split | `attend_split`: the same for noise and EOS; subject and relation are looked up | noise |
| tokens | `mix_by_attention`: the embeddings of every position are looked up | T · dim |

Importing this module does not load jax.
"""

from factmem.facts.vocabulary import PromptForm, Vocabulary

__all__ = ["choose_prompt_form"]

# Measured by benchmarks/vocabularies.py: batches of 1024 prompts of 32 tokens, d from 32 to 128. At
# 300 prompt tokens counts are up to 1.4 times as fast as split prompts, at 1,000 they take 0.7 to
# 1.3 times as long, at 3,000 with 64 noise tokens 2.3 to 3.0 times. With 1,500 noise tokens, split
# prompts take 1.2 times as long as tokens at d = 32, 0.7 times at d = 64, and the same at d = 128;
# with 5,000, 3.1, 1.9 and 2.4 times. T = 8 and 128 fit the rule too: tokens cost T · d a prompt.
_MAX_COUNTED_TOKENS = 1024
_MAX_SPLIT_NOISE = 0.75
"""In units of T · d."""


def choose_prompt_form(vocabulary: Vocabulary, length: int, dim: int) -> PromptForm:
    """Return the form in which a training step is fastest, by a rule that was measured.

    Args:
        vocabulary: the numbers of tokens.
        length: T, the number of tokens in a prompt.
        dim: d, the dimension of the embeddings.

    Examples:
        >>> choose_prompt_form(Vocabulary(24, 24, 48, 192), 32, 64)
        'counts'
        >>> choose_prompt_form(Vocabulary(25_799, 41, 64, 1_521), 32, 64)
        'split'
        >>> choose_prompt_form(Vocabulary(5_000, 100, 5_100, 800), 32, 64)
        'tokens'
    """
    if vocabulary.prompt_tokens <= _MAX_COUNTED_TOKENS:
        return "counts"
    return "split" if vocabulary.noise <= _MAX_SPLIT_NOISE * length * dim else "tokens"
