"""The compiler behind freeze(): a forward becomes values, values become steps."""
