"""The one-layer transformer of the paper: attention, then an MLP with a skip connection.

    F_MHSA(X) = Σ_h O_hᵀ V_h Xᵀ softmax(X K_hᵀ Q_h x_T)
    F_TF(X)   = F_MHSA(X) + V_mᵀ σ(W F_MHSA(X) + b)        (no bias in the theorems)
    prediction = argmax over outputs of φ(z)ᵀ F_TF(X)

There is no skip connection around attention and no LayerNorm.
"""

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import optax
from jaxtyping import Array, Float, Int, Key

from factmem._core.errors import FactmemError
from factmem._core.random import normal, truncated_normal
from factmem.facts.prompts import PromptContent, SplitPrompts, TokenPrompts
from factmem.facts.vocabulary import Vocabulary
from factmem.memories.activations import Activation, Relu
from factmem.memories.embeddings import gaussian, sphere
from factmem.transformer.attention import attend
from factmem.transformer.convention import EXPERIMENT_CONVENTION, Convention
from factmem.transformer.shape import Shape
from factmem.transformer.split_attention import attend_split
from factmem.transformer.token_attention import mix_by_attention

__all__ = [
    "Embeddings",
    "Transformer",
    "Weights",
    "accuracy",
    "accuracy_from_logits",
    "array_shapes",
    "cross_entropy",
    "draw_weights",
    "mean_cross_entropy",
]


class Weights(eqx.Module):
    """The trained or constructed weights. Row i of `mlp_in` and `mlp_out` is hidden neuron i."""

    query: Float[Array, "heads head_dim dim"]
    key: Float[Array, "heads head_dim dim"]
    value: Float[Array, "heads head_dim dim"]
    output: Float[Array, "heads head_dim dim"]
    mlp_in: Float[Array, "width dim"]
    mlp_bias: Float[Array, " width"] | None
    mlp_out: Float[Array, "width dim"]


class Embeddings(eqx.Module):
    """The frozen embedding vectors of tokens and answers.

    `answers` is None if one table serves inputs and outputs; the rows of `tokens` are then the
    whole vocabulary, answers last.
    """

    tokens: Float[Array, "tokens dim"]
    answers: Float[Array, "answers dim"] | None

    @property
    def dim(self) -> int:
        """The embedding dimension d."""
        return self.tokens.shape[-1]

    @property
    def outputs(self) -> Float[Array, "outputs dim"]:
        """The table over which predictions are decoded."""
        return self.tokens if self.answers is None else self.answers

    @classmethod
    def draw(
        cls,
        dim: int,
        vocabulary: Vocabulary,
        convention: Convention = EXPERIMENT_CONVENTION,
        *,
        key: Key[Array, ""],
    ) -> "Embeddings":
        """Draw random tables from the convention's distribution."""
        draw = {"sphere": sphere, "gaussian": gaussian}[convention.embedding]
        token_key, answer_key = jr.split(key)
        if convention.shared_table:
            return cls(draw(vocabulary.size, dim, key=token_key), None)
        return cls(
            draw(vocabulary.prompt_tokens, dim, key=token_key),
            draw(vocabulary.answers, dim, key=answer_key),
        )


class Transformer(eqx.Module):
    """A one-layer transformer that recalls facts.

    Methods take a batch of token counts [batch, prompt_tokens]: attention over counts is one matrix
    product (`attention.py`). For large vocabularies they take `SplitPrompts` or `TokenPrompts`,
    with the same results up to rounding (`prompt_forms.py`). `dense.py` computes the same logits
    prompt by prompt.

    Args:
        weights: trained or constructed weights.
        embeddings: frozen embedding tables.
        shape: sizes d, H, d_h and m.
        vocabulary: tokens and answers.
        convention: of the paper's theorems or experiments.
        activation: σ of the MLP.

    Raises:
        FactmemError: an array has the wrong shape.

    Examples:
        >>> import jax.random as jr
        >>> from factmem.facts import FactTable, PromptDistribution
        >>> prompts = PromptDistribution.from_table(FactTable.random(16, 4, 8))
        >>> shape = Shape(32, 4, 8, width=32)
        >>> model = Transformer.draw(shape, prompts.vocabulary, key=jr.key(0))
        >>> batch = prompts.sample_batch(10, form="counts", key=jr.key(1))
        >>> model.logits(batch.content).shape, model.shape.parameters
        ((10, 32), 6144)
    """

    weights: Weights
    embeddings: Embeddings
    shape: Shape = eqx.field(static=True)
    vocabulary: Vocabulary = eqx.field(static=True)
    convention: Convention = eqx.field(static=True, default=EXPERIMENT_CONVENTION)
    activation: Activation = eqx.field(static=True, default=Relu())

    def __check_init__(self) -> None:
        expected = array_shapes(self.shape, self.vocabulary, self.convention)
        for part in ("weights", "embeddings"):
            for name, shape in expected[part].items():
                array = getattr(getattr(self, part), name)
                actual = None if array is None else array.shape
                if actual != shape:
                    raise FactmemError(f"{part}.{name} must have shape {shape}, got {actual}")

    @classmethod
    def draw(
        cls,
        shape: Shape,
        vocabulary: Vocabulary,
        convention: Convention = EXPERIMENT_CONVENTION,
        activation: Activation = Relu(),
        *,
        key: Key[Array, ""],
    ) -> "Transformer":
        """Draw a random transformer, initialized as in the authors' experiments.

        Query, key and value entries are N(0, 1/d_h), output entries N(0, 1/d). MLP weights are
        truncated normal with LeCun scaling, MLP biases 0.
        """
        weight_key, _ = jr.split(key)
        return cls(
            draw_weights(shape, convention, key=weight_key),
            cls.draw_embeddings(shape.dim, vocabulary, convention, key=key),
            shape,
            vocabulary,
            convention,
            activation,
        )

    @staticmethod
    def draw_embeddings(
        dim: int,
        vocabulary: Vocabulary,
        convention: Convention = EXPERIMENT_CONVENTION,
        *,
        key: Key[Array, ""],
    ) -> Embeddings:
        """Draw the embeddings of `Transformer.draw` for the same key, without its weights."""
        _, embedding_key = jr.split(key)
        return Embeddings.draw(dim, vocabulary, convention, key=embedding_key)

    # ---- the forward pass ----------------------------------------------------------------------

    @property
    def score_scale(self) -> float:
        """The factor of the scores: 1/√d_h if the convention scales them, else 1."""
        return self.shape.head_dim**-0.5 if self.convention.scaled_scores else 1.0

    def scores(self) -> Float[Array, "prompt_tokens heads"]:
        """Compute the scores s_h(z) = φ(z)ᵀ K_hᵀ Q_h φ(EOS) of all tokens and heads, in nats."""
        return self._scores(self._prompt_embeddings)

    def noise_scores(self) -> Float[Array, "noise heads"]:
        """Compute the scores of the noise tokens only."""
        vocabulary = self.vocabulary
        return self._scores(self.embeddings.tokens[vocabulary.first_noise : vocabulary.eos])

    def values(self) -> Float[Array, "prompt_tokens heads head_dim"]:
        """Compute V_h φ(z), the value of every token in every head."""
        return self._values(self._prompt_embeddings)

    def attention(
        self, prompts: PromptContent, *, tolerance: float | None = None
    ) -> Float[Array, "batch dim"]:
        """Compute F_MHSA, the sum of the heads' outputs. See `attend` for `tolerance`."""
        if isinstance(prompts, SplitPrompts):
            attended = self._attend_split(prompts, tolerance)
        elif isinstance(prompts, TokenPrompts):
            attended = self._attend_tokens(prompts)
        else:
            attended = attend(prompts, self.scores(), self.values(), tolerance=tolerance)
        with _full_precision():
            return jnp.einsum("bhk,hkd->bd", attended, self.weights.output)

    def _attend_split(
        self, prompts: SplitPrompts, tolerance: float | None
    ) -> Float[Array, "batch heads head_dim"]:
        shared = self._prompt_embeddings[self.vocabulary.first_noise :]
        own = self.embeddings.tokens[prompts.own.reshape(-1)]
        own_scores, own_values = self._scores(own), self._values(own)
        return attend_split(
            prompts.shared,
            self._scores(shared),
            self._values(shared),
            own_scores.reshape(*prompts.own.shape, *own_scores.shape[1:]),
            own_values.reshape(*prompts.own.shape, *own_values.shape[1:]),
            tolerance=tolerance,
        )

    def _attend_tokens(self, prompts: TokenPrompts) -> Float[Array, "batch heads head_dim"]:
        tokens = prompts.tokens
        embedded = self.embeddings.tokens[tokens.reshape(-1)]
        scores = self._scores(embedded)
        mixed = mix_by_attention(
            tokens,
            scores.reshape(*tokens.shape, -1),
            embedded.reshape(*tokens.shape, -1),
        )
        with _full_precision():
            return jnp.einsum("bhd,hkd->bhk", mixed, self.weights.value)

    def _scores(self, embedded: Float[Array, "tokens dim"]) -> Float[Array, "tokens heads"]:
        """Compute the scores of some tokens from their embeddings."""
        with _full_precision():
            queries = jnp.einsum("hkd,d->hk", self.weights.query, self._prompt_embeddings[-1])
            directions = jnp.einsum("hkd,hk->dh", self.weights.key, queries)
            return embedded @ directions * self.score_scale

    def _values(
        self, embedded: Float[Array, "tokens dim"]
    ) -> Float[Array, "tokens heads head_dim"]:
        """Compute the values of some tokens from their embeddings."""
        with _full_precision():
            return jnp.einsum("zd,hkd->zhk", embedded, self.weights.value)

    def add_mlp(self, x: Float[Array, "*batch dim"]) -> Float[Array, "*batch dim"]:
        """Return x + F_MLP(x), or x if there is no MLP."""
        if self.shape.width == 0:
            return x
        with _full_precision():
            hidden = x @ self.weights.mlp_in.T
            if self.weights.mlp_bias is not None:
                # Explicit, because x may be a vector or a batch and tests forbid rank promotion.
                hidden = hidden + jnp.broadcast_to(self.weights.mlp_bias, hidden.shape)
            return x + self.activation(hidden) @ self.weights.mlp_out

    def __call__(
        self, prompts: PromptContent, *, tolerance: float | None = None
    ) -> Float[Array, "batch dim"]:
        """Compute F_TF, the output at the last position before decoding."""
        return self.add_mlp(self.attention(prompts, tolerance=tolerance))

    def logits(
        self, prompts: PromptContent, *, tolerance: float | None = None
    ) -> Float[Array, "batch outputs"]:
        """Compute φ(z)ᵀ F_TF for every output z."""
        with _full_precision():
            return self(prompts, tolerance=tolerance) @ self.embeddings.outputs.T

    def targets(self, answers: Int[Array, " batch"]) -> Int[Array, " batch"]:
        """Return the output ids of answer ids."""
        return answers + (self.vocabulary.first_answer if self.convention.shared_table else 0)

    # ---- properties of the weights -------------------------------------------------------------

    @property
    def W_OV(self) -> Float[Array, "heads dim dim"]:
        """O_hᵀ V_h of every head."""
        return jnp.einsum("hki,hkj->hij", self.weights.output, self.weights.value)

    @property
    def W_KQ(self) -> Float[Array, "heads dim dim"]:
        """K_hᵀ Q_h of every head, without the score scale."""
        return jnp.einsum("hki,hkj->hij", self.weights.key, self.weights.query)

    @property
    def total_parameters(self) -> int:
        """The number of entries of all arrays, biases and embedding tables included."""
        return sum(leaf.size for leaf in jax.tree.leaves((self.weights, self.embeddings)))

    @property
    def _prompt_embeddings(self) -> Float[Array, "prompt_tokens dim"]:
        return self.embeddings.tokens[: self.vocabulary.prompt_tokens]


def draw_weights(
    shape: Shape, convention: Convention = EXPERIMENT_CONVENTION, *, key: Key[Array, ""]
) -> Weights:
    """Draw random weights, initialized as in `Transformer.draw`."""
    q, k, v, o, w_in, w_out = jr.split(key, 6)
    per_head = (shape.heads, shape.head_dim, shape.dim)
    return Weights(
        query=normal(q, per_head) * shape.head_dim**-0.5,
        key=normal(k, per_head) * shape.head_dim**-0.5,
        value=normal(v, per_head) * shape.head_dim**-0.5,
        output=normal(o, per_head) * shape.dim**-0.5,
        mlp_in=_lecun(w_in, (shape.width, shape.dim), fan_in=shape.dim),
        mlp_bias=jnp.zeros(shape.width) if convention.mlp_bias else None,
        mlp_out=_lecun(w_out, (shape.width, shape.dim), fan_in=shape.width),
    )


def cross_entropy(
    model: Transformer,
    prompts: PromptContent,
    answers: Int[Array, " batch"],
    *,
    tolerance: float | None = None,
) -> Float[Array, ""]:
    """Compute the mean cross-entropy of the answers, in nats.

    Args:
        model: the transformer.
        prompts: the prompts, as token counts or in another form.
        answers: ids of the correct answers.
        tolerance: for score gradients, see `attend`; training uses `TRAINING_TOLERANCE`.
    """
    return mean_cross_entropy(model.logits(prompts, tolerance=tolerance), model.targets(answers))


def accuracy(
    model: Transformer, prompts: PromptContent, answers: Int[Array, " batch"]
) -> Float[Array, ""]:
    """Compute the fraction of prompts whose largest logit is the answer; NaN counts as wrong."""
    return accuracy_from_logits(model.logits(prompts), model.targets(answers))


def mean_cross_entropy(
    logits: Float[Array, "batch outputs"], targets: Int[Array, " batch"]
) -> Float[Array, ""]:
    """Compute the mean cross-entropy of the targets, in nats."""
    return jnp.mean(optax.softmax_cross_entropy_with_integer_labels(logits, targets))


def accuracy_from_logits(
    logits: Float[Array, "batch outputs"], targets: Int[Array, " batch"]
) -> Float[Array, ""]:
    """Compute the fraction of rows whose largest logit is the target's; NaN counts as wrong."""
    correct = jnp.argmax(logits, axis=1) == targets
    return jnp.mean(correct & ~jnp.isnan(logits).any(axis=1))


# Accelerators may round the inputs of a matrix product to 10 bits: 0.1 in a score of 100 nats.
_full_precision = partial(jax.default_matmul_precision, "highest")


def _lecun(
    key: Key[Array, ""], shape: tuple[int, int], fan_in: int
) -> Float[Array, "rows columns"]:
    """Draw normal entries truncated at two standard deviations, with variance 1/fan_in."""
    truncated_std = 0.87962566103423978
    return truncated_normal(key, -2.0, 2.0, shape) * (max(fan_in, 1) ** -0.5 / truncated_std)


def array_shapes(
    shape: Shape, vocabulary: Vocabulary, convention: Convention
) -> dict[str, dict[str, tuple[int, ...] | None]]:
    """Return the shape of every array of a transformer; None if the convention lacks it."""
    per_head = (shape.heads, shape.head_dim, shape.dim)
    per_neuron = (shape.width, shape.dim)
    shared = convention.shared_table
    return {
        "weights": {
            "query": per_head,
            "key": per_head,
            "value": per_head,
            "output": per_head,
            "mlp_in": per_neuron,
            "mlp_bias": (shape.width,) if convention.mlp_bias else None,
            "mlp_out": per_neuron,
        },
        "embeddings": {
            "tokens": (vocabulary.size if shared else vocabulary.prompt_tokens, shape.dim),
            "answers": None if shared else (vocabulary.answers, shape.dim),
        },
    }
