"""Keeps the checkout off the import path of processes that tests start.

Without it ``python -c`` run from the checkout would import the sources, which lack the compiled
library, in place of the installed package. Python 3.10 does not know the variable.
"""

import os

os.environ.setdefault("PYTHONSAFEPATH", "1")
