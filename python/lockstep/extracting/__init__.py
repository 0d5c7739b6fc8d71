# SPDX-License-Identifier: Apache-2.0
"""Extraction: one process plays one rank of many, and writes down the linear function from what its backward passes yield, and from what
other ranks bring to its collectives, to what its optimizer reads (docs/extract.md).

contents.py    what tensors hold: exact sums of fractions times elements of sources
rules.py       what an operation makes of that
squares.py     and of norms of gradients
norms.py       those by which gradients are clipped, in a rank's program
following.py   the dispatch mode that applies the rules to everything that runs
peers.py       the process group in which all other ranks are played
session.py     what comes out of its collectives
flights.py     those that nobody has waited for
comm_hooks.py  DDP's hooks that torch refuses without a GPU
numbers.py     the same of whole numbers that ranks put into them
program.py     the capture that writes a rank's program
playing.py     one rank: the script, its environment, where the capture begins and ends
weights.py     whether modules compute with the weights that optimizers have
parts.py       which elements of parameters those have that a framework wraps
stepping.py    and whether these step with what the framework has
ranks.py       which ranks are played, by processes that share what they import
found.py       what they leave that others have to know
alike.py       whether ranks along an axis yield one gradient or shares of one, as what they yield tells
placements.py  what is said of that, by whom, and what is not
runs.py        the same of a captured run
answers.py     what a rank gets of it, and has looked for
cache.py       what ranks have left in earlier extractions, taken where all on which it depends is the same:
watching.py    what a rank looks at outside of itself
programs.py    of programs that it starts, those that tell of the machine alone
inputs.py      whether that is what it was
"""
