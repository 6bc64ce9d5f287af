"""Bounds on what any model can store, in bits, and a few claims of the paper.

python examples/bounds.py
"""

import tempfile
import textwrap
from pathlib import Path

import numpy as np

from factmem import LocalWorkers, Store, check_claims
from factmem.bounds import IdealTable, Zipf, min_loss, random_table_bits
from factmem.paper import get_claim

CLAIMS = ("one-gradient-step", "theorem-7", "scaling-law", "theorem-8")
FACTS, OUTPUTS, POWER = 2000, 32, 1.5


def table_bits() -> None:
    """Print the bits of Theorem 8."""
    bits = random_table_bits(subjects=32, relations=32, answers=8, vocabulary=512)
    print("A random table: 32 subjects, 32 relations, 8 of 512 answers per relation")
    print(f"  answers of the facts:      {bits.association_bits:10,.1f} bits")
    print(f"  answers of the relations:  {bits.answer_set_bits:10,.1f} bits")
    print(f"  of these for unused ones:  {bits.unused_answer_bits:10,.1f} bits")
    print(f"  needed by a perfect model: {bits.bits:10,.1f} bits")


def ideal_tables() -> None:
    """Print the bound of Theorem 7 and the loss of a model that is close to it."""
    questions = Zipf(FACTS, POWER)
    target = np.random.default_rng(0).integers(OUTPUTS, size=FACTS).tolist()
    probabilities = np.arange(1, FACTS + 1) ** -POWER
    probabilities /= probabilities.sum()
    print(f"\n{FACTS:,} facts, {OUTPUTS} outputs, Zipf exponent {POWER}: loss in bits")
    for bits in (64, 512, 4096):
        table = IdealTable.encode(target, OUTPUTS, bits)
        loss = probabilities @ [np.log2(len(table.possible_answers(x))) for x in range(FACTS)]
        bound = min_loss(bits, OUTPUTS, questions)
        print(f"  {bits:5,} bits: lower bound {bound:.4f}, ideal table {loss:.4f}")


def claims() -> None:
    """Check a few claims; `factmem claims` checks all of them."""
    print("\nClaims of the paper")
    with (
        tempfile.TemporaryDirectory() as folder,
        Store(Path(folder) / "runs.sqlite") as store,
        LocalWorkers() as workers,
    ):
        for checked in check_claims([get_claim(id) for id in CLAIMS], store, workers):
            claim, verdict = checked.claim, checked.finding.verdict.value
            text = f"{claim.id}: {verdict}. {claim.statement}"
            print(textwrap.fill(text, 80, initial_indent="  ", subsequent_indent="    "))


if __name__ == "__main__":
    table_bits()
    ideal_tables()
    claims()
