"""`python -m factmem` runs the command line."""

from factmem.cli import run

if __name__ == "__main__":
    run()
