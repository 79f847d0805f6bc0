"""Binary convolutional networks and their layers beside torch."""
