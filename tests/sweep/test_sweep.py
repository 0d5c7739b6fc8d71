# SPDX-License-Identifier: Apache-2.0
"""The part of the sweep that runs with every change: some layouts of each framework, the same ones every time.

tools/sweep runs all of it. Both find no false alarm: what does not match is a known deviation of the real framework.
"""

import json
import os

import pytest
import settings
import sweep

pytestmark = pytest.mark.skipif("LOCKSTEP_BINARY" not in os.environ, reason="LOCKSTEP_BINARY does not name the program")

LAYOUTS = 100


@pytest.mark.parametrize("framework", sweep.frameworks())
def test_right_things_stay_right(framework, counted):
    found = sweep.sweep(framework, LAYOUTS)
    counted.append(found)
    assert not found.alarms, "\n".join(f"{report['verdict']}, not {expected}: {json.dumps(content)}"
                                       for content, report, expected in found.alarms[:5])
    assert [deviation.when.text for deviation in found.deviations if not deviation.seen] == []
    assert found.layouts >= 25 and found.matches >= 50


def test_every_known_deviation_is_a_scenario_that_is_wrong_and_names_its_source():
    every = sweep.known()
    assert set(every) <= set(sweep.frameworks())
    for entry in [entry for told in every.values() for entry in told.get("deviations", [])]:
        content = json.loads(settings.strip_comments((sweep.ROOT / entry["scenario"]).read_text(encoding="utf-8")))
        assert content["expect"]["verdict"] == "mismatch" and content["source"], entry["scenario"]
        assert entry["wrong"] in ("gradient", "norm")


def test_a_mistake_is_an_alarm(monkeypatch):
    right = settings.scenario

    def forgets_to_divide(*arguments):
        content = right(*arguments)
        content["schedule"]["edits"] = [{"drop": "dp_scale"}]
        return content

    monkeypatch.setattr(settings, "scenario", forgets_to_divide)
    found = sweep.sweep("nanotron", 20)
    assert any(report["verdict"] == "mismatch" for _, report, _ in found.alarms)


def test_a_deviation_that_is_not_known_is_an_alarm_and_one_that_does_not_occur_is_seen_to_be_stale(monkeypatch):
    stale = {"when": "cp > 1", "wrong": "gradient", "scenario": "", "because": ""}
    monkeypatch.setattr(sweep, "known", lambda: {"picotron": {"models": ["llama"], "deviations": [stale]}})
    found = sweep.sweep("picotron", 30)
    assert {expected for _, _, expected in found.alarms} >= {"match", "gradient"}
    monkeypatch.setattr(sweep, "known", lambda: {"torchtitan": {"sizes": {"tied_embeddings": "enable_weight_tying"},
                                                                "deviations": [{**stale, "when": "world_is_flat"}],
                                                                "let": {"world_is_flat": "False"}}})
    (deviation,) = sweep.sweep("torchtitan", 10).deviations
    assert deviation.seen == 0


def test_every_layout_is_enumerated_once():
    found = list(settings.layouts({"tp", "dp_shard", "ep"}))
    assert len({json.dumps(layout, sort_keys=True) for layout in found}) == len(found)
    assert {"tp": 2, "dp_shard": 32} in found and {"tp": 2, "dp_shard": 6, "ep": 4, "etp": 1} in found
    assert all(layout.get("tp", 1) * layout.get("dp_shard", 1) <= 64 for layout in found)
    # Without experts: ordered pairs with a product up to 64.
    assert len([layout for layout in found if "ep" not in layout]) == 280
