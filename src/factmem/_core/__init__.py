"""Shared by all packages: errors, files, canonical JSON, random numbers, L-BFGS, timing."""
