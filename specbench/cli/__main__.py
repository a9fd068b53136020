"""``python -m specbench.cli``."""

from specbench.cli.main import main

if __name__ == "__main__":
    main()
