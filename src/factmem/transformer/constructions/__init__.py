"""The constructions of Theorems 3 and 4."""
