# SPDX-License-Identifier: Apache-2.0
"""Repairs of the corpus are equal to the projects' fixes: a sample here, all of them with repairs.py."""

import repairs


def test_nearly_all_mistakes_of_schedules_are_repaired_as_the_projects_did():
    # A mistake of the model has no repair in the schedule; its file says so in its name or by edits of the model.
    chosen = [(wrong, fixed) for wrong, fixed in list(repairs.pairs())[::8] if '"edits": []' not in (repairs.ROOT / fixed).read_text()]
    assert len(chosen) > 15
    outcomes, _ = repairs.measure(chosen)
    good = [wrong for wrong, outcome in outcomes.items() if outcome in ("same steps", "equal")]
    assert len(good) >= 0.9 * len(outcomes), outcomes
    assert list(outcomes.values()).count("same steps") > len(outcomes) / 3
