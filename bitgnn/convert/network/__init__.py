"""The graph of values between tracing and packing: what each layer and function computes."""
