# SPDX-License-Identifier: Apache-2.0
"""Which lockstep this is."""


def version():
    """The package's, or "unknown" where it was not installed."""
    try:
        from importlib.metadata import version as installed
        return installed("lockstep")
    except Exception:  # a source tree
        return "unknown"
