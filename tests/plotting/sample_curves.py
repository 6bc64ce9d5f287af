"""Learning curves with known stages."""

import numpy as np

from factmem.dynamics import Curves, LossStatistics, PromptPopulation
from factmem.facts import FactTable

POPULATION = PromptPopulation.from_table(FactTable.structured(16, 4, 8))
TIMES = np.linspace(0.0, 800.0, 401)


def curves(relations=(100, 200), subjects=(400, 500)):
    """Return curves on which relations and subjects are learned within these times."""
    relation = np.log(4) * np.interp(TIMES, relations, [1, 0])
    subject = np.log(8) * np.interp(TIMES, subjects, [1, 0])
    fields = dict.fromkeys(LossStatistics._fields, np.zeros_like(TIMES))
    fields |= {
        "loss": relation + subject,
        "relation_loss": relation,
        "subject_loss": subject,
        "relation_kl": relation + np.log(8) - subject,
        "subject_kl": subject + np.log(4) - relation,
    }
    return Curves(TIMES, LossStatistics(**fields))
