"""`python -m bipace` is the command `bipace`."""

from bipace.cli import main

if __name__ == "__main__":
    main()
