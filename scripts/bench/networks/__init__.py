"""Binary convolutional networks and their layers against torch."""
