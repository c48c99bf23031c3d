"""The command ``redrive``, which is ``python -m redrive`` too: the command line, if its packages are installed."""

from __future__ import annotations

import sys

from redrive.contrib import extra


def main() -> None:
    """Run the command line; without its packages, write what to install and exit with status 2."""
    try:
        with extra("cli"):
            from redrive.cli import main as run
    except ModuleNotFoundError as error:
        sys.stderr.write(f"redrive: {error}\n")
        sys.exit(2)
    run()


if __name__ == "__main__":
    main()
