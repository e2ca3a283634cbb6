"""``python -m burnish`` is the same program as ``burnish``."""

from burnish.proxy.cli import main

if __name__ == "__main__":
    main()
