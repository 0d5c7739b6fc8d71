# SPDX-License-Identifier: Apache-2.0
"""The folders whose mutants are drawn and counted by themselves."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# What is wrong here can be told as right: these have a goal, from what a configuration is read as to what a report says. The others are the
# command line, readers of tensors, and engines that repeat what these have checked.
DECIDE = ("base", "mesh", "expression", "model", "schedule", "scenario", "symbolic", "symbolic/parametric", "numeric", "diagnosis",
          "transformer", "live", "importers", "report")
# Folders below folders that are counted by themselves.
OWN = ("symbolic/parametric",)


def folder_of(file):
    """The folder of a source or header of src/, relative to the root."""
    return next((own for own in OWN if file.startswith(f"src/{own}/")), file.split("/")[1])


def library_of(folder):
    """The object library of which it is compiled a part."""
    return folder.split("/")[0]


def all_folders():
    """Those that decide first."""
    found = {folder_of(str(path.relative_to(ROOT))) for path in ROOT.glob("src/**/*.cpp")}
    return [*(folder for folder in DECIDE if folder in found), *sorted(found.difference(DECIDE))]
