# SPDX-License-Identifier: Apache-2.0
"""Scenario files for Python's JSON reader, which knows neither comments nor a comma after the last entry."""

import json
import re

STRING_OR_COMMENT = re.compile(r'("(?:[^"\\]|\\.)*")|//[^\n]*|/\*.*?\*/', re.DOTALL)
STRING_OR_TRAILING_COMMA = re.compile(r'("(?:[^"\\]|\\.)*")|,(?=\s*[\]}])', re.DOTALL)


def read(path):
    text = STRING_OR_COMMENT.sub(lambda match: match.group(1) or " ", path.read_text(encoding="utf-8"))
    return json.loads(STRING_OR_TRAILING_COMMA.sub(lambda match: match.group(1) or "", text))
