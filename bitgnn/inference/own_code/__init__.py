"""The user's own code that programs call: how calls run, and how files name and hold them."""
