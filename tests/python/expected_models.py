# SPDX-License-Identifier: Apache-2.0
"""The models of expected_cases.py, as scenarios list them."""

# That of expected_extracted.py.
SMALL = [{"name": "0.weight", "shape": [12, 8]}, {"name": "0.bias", "shape": [12]}, {"name": "2.weight", "shape": [12]}, {"name": "2.bias", "shape": [12]},
         {"name": "3.weight", "shape": [6, 12]}, {"name": "3.bias", "shape": [6]}]

# That of extracted.py, with each block's linear layers cut over tp.
BLOCKS = [{"name": "%d.%s" % (block, name), "shape": shape, **({"shard": {"tp": dim}} if dim is not None else {})} for block in range(2) for name, shape, dim in [
    ("norm.weight", [8], None), ("norm.bias", [8], None), ("up.weight", [12, 8], 0), ("up.bias", [12], 0), ("down.weight", [8, 12], 1), ("down.bias", [8], None)]]
