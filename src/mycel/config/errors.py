"""What can be wrong with a configuration. All of it is for whoever wrote it to correct.

    ConfigurationError
    ├── ConfigurationMissing      there is no such file
    ├── ConfigurationUnreadable   it cannot be read, or is no text
    ├── ConfigurationMalformed    it is no TOML
    ├── UnknownKey                Mycel has no such setting
    └── BadValue                  a wrong type, or a value out of bounds

Each says where: the file and line, the environment variable or the flag.
"""

from __future__ import annotations


class ConfigurationError(Exception):
    """The root of the tree."""


class ConfigurationMissing(ConfigurationError):
    """There is no such file."""


class ConfigurationUnreadable(ConfigurationError):
    """The file cannot be read, or is no text."""


class ConfigurationMalformed(ConfigurationError):
    """The file is no TOML."""


class UnknownKey(ConfigurationError):
    """Mycel has no such setting."""


class BadValue(ConfigurationError):
    """A value of the wrong type, or out of bounds."""
