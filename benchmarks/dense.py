"""The baseline of every speed claim: the same training step in straightforward dense JAX.

Written as a standard transformer: tokens are embedded into a [batch, T, d] array, keys and
values are computed for every position with einsum, softmax runs over positions, optax's Adam
updates the weights, prompts are sampled inside the step, and Python calls the jitted step once per
step on all cores. It shares no code with factmem, and it must not change after its first
measurement, because every speedup is measured against it.

Conventions of the paper's experiments: separate frozen Gaussian tables, scores divided by
sqrt(d_h), an MLP with a bias, cross-entropy over the answers.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
import optax


class Size(NamedTuple):
    dim: int
    heads: int
    head_dim: int
    width: int
    subjects: int
    relations: int
    answers_per_relation: int
    length: int = 32
    batch_size: int = 1024

    @property
    def noise(self) -> int:
        return self.subjects + self.relations


SIZES = (
    Size(32, 8, 4, 32, 32, 32, 8),
    Size(64, 8, 8, 64, 64, 64, 8),
    Size(128, 8, 16, 128, 120, 120, 8),
)


def random_table(key, size: Size):
    """a*(s, r) uniform among the D answers of relation r."""
    drawn = jr.randint(key, (size.subjects, size.relations), 0, size.answers_per_relation)
    return drawn + size.answers_per_relation * jnp.arange(size.relations)[None, :]


def initial_tables(key, size: Size):
    vocabulary = size.subjects + size.relations + size.noise + 1
    answers = size.relations * size.answers_per_relation
    embed_key, unembed_key = jr.split(key)
    scale = size.dim**-0.5
    embed = scale * jr.normal(embed_key, (vocabulary, size.dim))
    unembed = scale * jr.normal(unembed_key, (answers, size.dim))
    return embed, unembed


def initial_weights(key, size: Size):
    d, heads, head_dim, width = size.dim, size.heads, size.head_dim, size.width
    q, k, v, o, w1, w2 = jr.split(key, 6)
    return {
        "q": jr.normal(q, (heads, d, head_dim)) * head_dim**-0.5,
        "k": jr.normal(k, (heads, d, head_dim)) * head_dim**-0.5,
        "v": jr.normal(v, (heads, d, head_dim)) * head_dim**-0.5,
        "o": jr.normal(o, (heads, head_dim, d)) * d**-0.5,
        "w1": jr.normal(w1, (d, width)) * d**-0.5,
        "b1": jnp.zeros(width),
        "w2": jr.normal(w2, (width, d)) * width**-0.5,
    }


def sample(key, table, size: Size):
    """A batch of prompts [batch, T] and their answers [batch]."""
    s_key, r_key, i_key, j_key, noise_key = jr.split(key, 5)
    batch, length = size.batch_size, size.length
    subject = jr.randint(s_key, (batch,), 0, size.subjects)
    relation = jr.randint(r_key, (batch,), 0, size.relations)
    i = jr.randint(i_key, (batch,), 0, length - 1)
    j = jr.randint(j_key, (batch,), 0, length - 2)
    j = j + (j >= i)
    first_noise = size.subjects + size.relations
    eos = first_noise + size.noise
    tokens = jr.randint(noise_key, (batch, length), first_noise, eos)
    position = jnp.arange(length)[None, :]
    tokens = jnp.where(position == i[:, None], subject[:, None], tokens)
    tokens = jnp.where(position == j[:, None], size.subjects + relation[:, None], tokens)
    tokens = tokens.at[:, -1].set(eos)
    return tokens, table[subject, relation]


def loss(weights, tables, tokens, answers):
    embed, unembed = tables
    x = embed[tokens]
    query = jnp.einsum("bd,hdk->bhk", x[:, -1], weights["q"])
    keys = jnp.einsum("btd,hdk->bthk", x, weights["k"])
    values = jnp.einsum("btd,hdk->bthk", x, weights["v"])
    scores = jnp.einsum("bhk,bthk->bht", query, keys) / weights["q"].shape[-1] ** 0.5
    attention = jnp.einsum("bht,bthk->bhk", jax.nn.softmax(scores), values)
    z = jnp.einsum("bhk,hkd->bd", attention, weights["o"])
    z = z + jax.nn.relu(z @ weights["w1"] + weights["b1"]) @ weights["w2"]
    logits = z @ unembed.T
    return optax.softmax_cross_entropy_with_integer_labels(logits, answers).mean()


def make_step(size: Size, table, tables, learning_rate: float = 1e-3):
    """Return a jitted `step(key, number, weights, state)` and the optimizer's `init` function."""
    optimizer = optax.adam(learning_rate)

    @jax.jit
    def step(key, number, weights, state):
        tokens, answers = sample(jr.fold_in(key, number), table, size)
        value, gradient = jax.value_and_grad(loss)(weights, tables, tokens, answers)
        updates, state = optimizer.update(gradient, state)
        return optax.apply_updates(weights, updates), state, value

    return step, optimizer.init
