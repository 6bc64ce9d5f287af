"""What no model can beat, in bits, and a few claims of the paper checked.

python examples/bounds.py
"""

import tempfile
from pathlib import Path

import numpy as np

from factmem.bounds import IdealTable, Zipf, least_loss, random_table_bits
from factmem.experiments import LocalWorkers, Store
from factmem.paper import check_claims, claim_named

CHECKED = ("one-gradient-step", "theorem-7", "scaling-law", "theorem-8")


def bits_of_a_table() -> None:
    """Theorem 8."""
    found = random_table_bits(subjects=32, relations=32, answers=8, vocabulary=512)
    print("A random table of 32 subjects and 32 relations, 8 answers each of 512 words:")
    print(f"  {found.association_bits:,.1f} bits tell each fact's answer,")
    print(f"  {found.answer_set_bits:,.1f} each relation's answers,")
    print(f"  {found.unseen_bits:,.1f} of them on answers that no fact has:")
    print(f"  {found.bits:,.1f} bits has every model without loss.\n")


def losses_of_ideal_tables() -> None:
    """Theorem 7, and a model that attains it."""
    questions, target = Zipf(2000, 1.5), np.random.default_rng(0).integers(32, size=2000)
    chances = np.arange(1, 2001) ** -1.5
    chances /= chances.sum()
    print("2,000 associations, 32 outputs, questions by Zipf's law of power 1.5:")
    for bits in (64, 512, 4096):
        table = IdealTable.of(target.tolist(), 32, bits)
        loss = chances @ [np.log2(len(table.possible(x))) for x in range(2000)]
        bound = least_loss(bits, 32, questions)
        print(f"  {bits:5,} bits: no loss below {bound:.4f} bits; an ideal table has {loss:.4f}")


def main() -> None:
    """Bounds, and claims."""
    bits_of_a_table()
    losses_of_ideal_tables()
    print("\nClaims (factmem claims checks all of them):")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "runs.sqlite"
        with Store(path) as store, LocalWorkers() as workers:
            claims = [claim_named(name) for name in CHECKED]
            for each in check_claims(claims, store, workers):
                print(f"  {each.claim.id}: {each.finding.verdict.value}. {each.claim.claim}")


if __name__ == "__main__":
    main()
