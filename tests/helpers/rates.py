"""A machine whose rates are round numbers, for floors that can be worked out by hand."""


class FixedRates:
    """A second for a launch; ten bytes of memory or a hundred gathered ones a second."""

    launch_seconds = 1.0

    def memory_seconds(self, read, written):
        return (read + written) / 10

    def gather_seconds(self, edges, nodes, row_bytes):
        return edges * row_bytes / 100
