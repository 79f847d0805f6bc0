"""binarize() and freeze() for convolutional and fully connected networks."""
