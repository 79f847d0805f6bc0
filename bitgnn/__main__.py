"""The command ``bitgnn`` as ``python -m bitgnn``."""

from bitgnn.cli import main

if __name__ == "__main__":
    main()
