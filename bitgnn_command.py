"""Entry point of the command `bitgnn`, which reads its command line before it imports torch.

It stands beside the package, whose `__init__` imports torch.
"""

import sys
from importlib.util import find_spec, module_from_spec

__all__ = ["main"]


def main() -> None:
    """Run the command: submodules are found from the start, `__init__` runs when a job begins."""
    spec = find_spec("bitgnn")
    assert spec is not None
    sys.modules["bitgnn"] = module_from_spec(spec)
    from bitgnn._interpreter import ctrl_c_ends_silently

    with ctrl_c_ends_silently():
        from bitgnn.cli import main as run
    run()
