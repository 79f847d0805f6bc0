"""Training on images: the networks of the papers, binary and in full precision, with proof."""
