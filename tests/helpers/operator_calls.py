"""Notes the package's operators as they are called."""

from torch.utils._python_dispatch import TorchDispatchMode


class OperatorCalls(TorchDispatchMode):
    """``calls`` holds name, arguments and named arguments of each call inside, in order."""

    def __init__(self):
        super().__init__()
        self.calls = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func.namespace == "bitgnn":
            self.calls.append((func.overloadpacket.__name__, args, kwargs or {}))
        return func(*args, **(kwargs or {}))

    @property
    def names(self):
        return [name for name, _, _ in self.calls]
