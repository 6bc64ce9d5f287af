"""The constructions of Theorems 3 and 4, and the denoising heads that they share."""
