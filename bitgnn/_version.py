"""The version, for the build and the command as well: neither needs to import the package."""

__version__ = "0.1.0"
