"""The one-layer transformer of the paper: attention, then an MLP beside a skip connection.

    F_MHSA(X) = Σ_h O_hᵀ V_h Xᵀ softmax(X K_hᵀ Q_h x_T)
    F_TF(X)   = F_MHSA(X) + V_mᵀ σ(W F_MHSA(X) + b)        (no bias b in the theorems)
    prediction = argmax over outputs of φ(z)ᵀ F_TF(X)

There is no skip around attention and no LayerNorm.
"""

import operator
from dataclasses import dataclass
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import optax
from jaxtyping import Array, Float, Int, Key, Num

from factmem._core.errors import FactmemError
from factmem._core.random import normal, truncated_normal
from factmem.facts.vocabulary import Vocabulary
from factmem.memories.activations import Activation, Relu
from factmem.memories.embeddings import gaussian, sphere
from factmem.transformer.attention import attend
from factmem.transformer.convention import EXPERIMENTS, Convention

__all__ = [
    "Embeddings",
    "Shape",
    "Transformer",
    "Weights",
    "accuracy",
    "accuracy_from_logits",
    "array_shapes",
    "cross_entropy",
    "draw_weights",
    "mean_cross_entropy",
]


@dataclass(frozen=True)
class Shape:
    """The size (d, H, d_h, m) of a transformer.

    Args:
        dim: d, the dimension of embeddings.
        heads: H.
        head_dim: d_h.
        width: m, hidden neurons of the MLP; 0 is attention only.
    """

    dim: int
    heads: int
    head_dim: int
    width: int = 0

    def __post_init__(self) -> None:
        least = {"dim": 1, "heads": 1, "head_dim": 1, "width": 0}
        for name, smallest in least.items():
            size = operator.index(getattr(self, name))
            object.__setattr__(self, name, size)
            if size < smallest:
                raise FactmemError(f"a transformer's {name} is at least {smallest}, not {size}")

    @property
    def parameters(self) -> int:
        """4·H·d·d_h + 2·m·d, as the paper counts: without biases and without embeddings."""
        return 4 * self.heads * self.dim * self.head_dim + 2 * self.width * self.dim


class Weights(eqx.Module):
    """What is trained or constructed. Rows of `mlp_in` and `mlp_out` belong to hidden neurons."""

    query: Float[Array, "heads head_dim dim"]
    key: Float[Array, "heads head_dim dim"]
    value: Float[Array, "heads head_dim dim"]
    output: Float[Array, "heads head_dim dim"]
    mlp_in: Float[Array, "width dim"]
    mlp_bias: Float[Array, " width"] | None
    mlp_out: Float[Array, "width dim"]


class Embeddings(eqx.Module):
    """The vectors of the tokens, given and frozen: nothing differentiates them unless asked to.

    `answers` is None where one table serves input and output; its rows are then the vocabulary's
    tokens, answers last.
    """

    tokens: Float[Array, "tokens dim"]
    answers: Float[Array, "answers dim"] | None

    @property
    def outputs(self) -> Float[Array, "outputs dim"]:
        """The table over which a prediction is decoded."""
        return self.tokens if self.answers is None else self.answers

    @classmethod
    def draw(
        cls, key: Key[Array, ""], dim: int, vocabulary: Vocabulary, convention: Convention
    ) -> "Embeddings":
        """Random tables as the convention has them."""
        draw = {"sphere": sphere, "gaussian": gaussian}[convention.embedding]
        token_key, answer_key = jr.split(key)
        if convention.shared_table:
            return cls(draw(token_key, vocabulary.size, dim), None)
        return cls(
            draw(token_key, vocabulary.prompt_tokens, dim),
            draw(answer_key, vocabulary.answers, dim),
        )


class Transformer(eqx.Module):
    """A one-layer transformer that answers questions about facts.

    Calls take a batch of token counts [batch, prompt_tokens], for one matrix product attends for
    all of them (`attention.py`); `dense.py` has the same model prompt by prompt.

    Args:
        weights: trained or constructed.
        embeddings: given.
        shape, vocabulary, convention, activation: what they mean.

    Raises:
        FactmemError: an array has the wrong shape.

    Examples:
        >>> import jax.random as jr
        >>> from factmem.facts import FactTable, PromptDistribution
        >>> asked = PromptDistribution.of(FactTable.random(16, 4, 8))
        >>> model = Transformer.draw(jr.key(0), Shape(32, 4, 8, width=32), asked.vocabulary)
        >>> prompts = asked.sample(jr.key(1), 10, form="counts")
        >>> model.logits(prompts.content).shape, model.shape.parameters
        ((10, 32), 6144)
    """

    weights: Weights
    embeddings: Embeddings
    shape: Shape = eqx.field(static=True)
    vocabulary: Vocabulary = eqx.field(static=True)
    convention: Convention = eqx.field(static=True, default=EXPERIMENTS)
    activation: Activation = eqx.field(static=True, default=Relu())

    def __check_init__(self) -> None:
        expected = array_shapes(self.shape, self.vocabulary, self.convention)
        for part in ("weights", "embeddings"):
            for name, shape in expected[part].items():
                found = getattr(getattr(self, part), name)
                found = None if found is None else found.shape
                if found != shape:
                    raise FactmemError(f"{part}.{name} has the shape {found} instead of {shape}")

    @classmethod
    def draw(
        cls,
        key: Key[Array, ""],
        shape: Shape,
        vocabulary: Vocabulary,
        convention: Convention = EXPERIMENTS,
        activation: Activation = Relu(),
    ) -> "Transformer":
        """A random transformer, as the authors' experiments start.

        Queries, keys and values have entries N(0, 1/d_h), outputs N(0, 1/d); the MLP has the
        truncated normal entries of LeCun's rule and a bias of 0.
        """
        weight_key, embedding_key = jr.split(key)
        return cls(
            draw_weights(weight_key, shape, convention),
            Embeddings.draw(embedding_key, shape.dim, vocabulary, convention),
            shape,
            vocabulary,
            convention,
            activation,
        )

    # ---- the forward pass ----------------------------------------------------------------------

    @property
    def score_scale(self) -> float:
        """What scores are multiplied by: 1, or 1/√d_h in the experiments' convention."""
        return self.shape.head_dim**-0.5 if self.convention.scaled_scores else 1.0

    def scores(self) -> Float[Array, "prompt_tokens heads"]:
        """s_h(z) = φ(z)ᵀ K_hᵀ Q_h φ(EOS): every head's score of every token, in nats."""
        tokens = self._prompt_embeddings
        with _full_precision():
            queries = jnp.einsum("hkd,d->hk", self.weights.query, tokens[-1])
            directions = jnp.einsum("hkd,hk->dh", self.weights.key, queries)
            return tokens @ directions * self.score_scale

    def values(self) -> Float[Array, "prompt_tokens heads head_dim"]:
        """V_h φ(z): what every head would read from every token."""
        with _full_precision():
            return jnp.einsum("zd,hkd->zhk", self._prompt_embeddings, self.weights.value)

    def attention(
        self, counts: Num[Array, "batch tokens"], *, tolerance: float | None = None
    ) -> Float[Array, "batch dim"]:
        """F_MHSA: what the heads together write. `attend` explains the tolerance."""
        attended = attend(counts, self.scores(), self.values(), tolerance=tolerance)
        with _full_precision():
            return jnp.einsum("bhk,hkd->bd", attended, self.weights.output)

    def with_mlp(self, x: Float[Array, "*batch dim"]) -> Float[Array, "*batch dim"]:
        """x + F_MLP(x), or x alone in a transformer of width 0."""
        if self.shape.width == 0:
            return x
        with _full_precision():
            hidden = x @ self.weights.mlp_in.T
            if self.weights.mlp_bias is not None:
                # Written out: x may be one vector or a batch, and ranks are not promoted silently.
                hidden = hidden + jnp.broadcast_to(self.weights.mlp_bias, hidden.shape)
            return x + self.activation(hidden) @ self.weights.mlp_out

    def __call__(
        self, counts: Num[Array, "batch tokens"], *, tolerance: float | None = None
    ) -> Float[Array, "batch dim"]:
        """F_TF: what stands at the last position before it is decoded."""
        return self.with_mlp(self.attention(counts, tolerance=tolerance))

    def logits(
        self, counts: Num[Array, "batch tokens"], *, tolerance: float | None = None
    ) -> Float[Array, "batch outputs"]:
        """φ(z)ᵀ F_TF for every output."""
        with _full_precision():
            return self(counts, tolerance=tolerance) @ self.embeddings.outputs.T

    def targets(self, answers: Int[Array, " batch"]) -> Int[Array, " batch"]:
        """Where answers stand among the outputs."""
        return answers + (self.vocabulary.first_answer if self.convention.shared_table else 0)

    # ---- looking at the weights ----------------------------------------------------------------

    @property
    def W_OV(self) -> Float[Array, "heads dim dim"]:
        """O_hᵀ V_h: what every head writes for what it reads."""
        return jnp.einsum("hki,hkj->hij", self.weights.output, self.weights.value)

    @property
    def W_KQ(self) -> Float[Array, "heads dim dim"]:
        """K_hᵀ Q_h, without the scale of the scores."""
        return jnp.einsum("hki,hkj->hij", self.weights.key, self.weights.query)

    @property
    def stored_numbers(self) -> int:
        """Every number of the model, biases and embedding tables included."""
        return sum(leaf.size for leaf in jax.tree.leaves((self.weights, self.embeddings)))

    @property
    def _prompt_embeddings(self) -> Float[Array, "prompt_tokens dim"]:
        return self.embeddings.tokens[: self.vocabulary.prompt_tokens]


def draw_weights(
    key: Key[Array, ""], shape: Shape, convention: Convention = EXPERIMENTS
) -> Weights:
    """Random weights as the authors' experiments start; see `Transformer.draw`."""
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
    counts: Num[Array, "batch tokens"],
    answers: Int[Array, " batch"],
    *,
    tolerance: float | None = None,
) -> Float[Array, ""]:
    """The mean cross-entropy of the answers, in nats.

    Args:
        model: what answers.
        counts: the prompts' token counts.
        answers: the right answers, as ids from 0.
        tolerance: of the score gradients (see `attend`); `TRAINING_TOLERANCE` when training.
    """
    return mean_cross_entropy(model.logits(counts, tolerance=tolerance), model.targets(answers))


def accuracy(
    model: Transformer, counts: Num[Array, "batch tokens"], answers: Int[Array, " batch"]
) -> Float[Array, ""]:
    """The share of prompts whose most likely output is the answer; NaN is no output."""
    return accuracy_from_logits(model.logits(counts), model.targets(answers))


def mean_cross_entropy(
    logits: Float[Array, "batch outputs"], targets: Int[Array, " batch"]
) -> Float[Array, ""]:
    """Of the right outputs, in nats."""
    return jnp.mean(optax.softmax_cross_entropy_with_integer_labels(logits, targets))


def accuracy_from_logits(
    logits: Float[Array, "batch outputs"], targets: Int[Array, " batch"]
) -> Float[Array, ""]:
    """The share of rows whose largest logit is the target's; NaN is no logit."""
    right = jnp.argmax(logits, axis=1) == targets
    return jnp.mean(right & ~jnp.isnan(logits).any(axis=1))


# An accelerator may round the inputs of products to 10 bits, which at 100 nats is 0.1 in a score.
_full_precision = partial(jax.default_matmul_precision, "highest")


def _lecun(
    key: Key[Array, ""], shape: tuple[int, int], fan_in: int
) -> Float[Array, "rows columns"]:
    """Normal entries cut off at two standard deviations, scaled to the variance 1/fan_in."""
    spread_when_cut = 0.87962566103423978
    return truncated_normal(key, -2.0, 2.0, shape) * (max(fan_in, 1) ** -0.5 / spread_when_cut)


def array_shapes(
    shape: Shape, vocabulary: Vocabulary, convention: Convention
) -> dict[str, dict[str, tuple[int, ...] | None]]:
    """The shape of every array of a transformer; None for those that its convention lacks."""
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
