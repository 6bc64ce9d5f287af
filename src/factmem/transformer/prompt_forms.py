"""Samples of prompts in the form that a transformer takes fastest."""

from jaxtyping import Array, Key

from factmem.facts.prompts import PromptBatch, PromptDistribution, TokenPrompts
from factmem.facts.vocabulary import PromptForm

__all__ = ["sample_prompts"]


def sample_prompts(
    prompts: PromptDistribution,
    batch_size: int,
    form: PromptForm,
    *,
    key: Key[Array, ""],
    stratified: bool = False,
) -> PromptBatch:
    """Sample a batch whose content a transformer takes: tokens come as `TokenPrompts`.

    With the same key, all forms represent the same prompts.
    """
    batch = prompts.sample_batch(batch_size, form=form, stratified=stratified, key=key)
    return batch._replace(content=TokenPrompts(batch.content)) if form == "tokens" else batch
