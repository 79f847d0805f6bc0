"""Times prompts and tokens of decoders with shares of layers on bits, on a GPU; see --help."""

from pathlib import Path

from bitgnn.bench.decoder_command import main

if __name__ == "__main__":
    raise SystemExit(main(root=Path(__file__).resolve().parent.parent))
