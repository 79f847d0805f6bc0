"""Binary dense products of trainable layers: the bits of their inputs, norms and gains."""
