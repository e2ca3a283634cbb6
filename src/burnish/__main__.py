"""``python -m burnish`` is the same program as ``burnish``."""

from burnish.cli import main

if __name__ == "__main__":
    main()
