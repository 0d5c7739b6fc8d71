# SPDX-License-Identifier: Apache-2.0
"""The schema as editors use it: each key has a text to show."""

import json


def properties_of(schema, path=""):
    if isinstance(schema, list):
        schema = dict(enumerate(schema))
    if not isinstance(schema, dict):
        return
    if isinstance(schema.get("properties"), dict):
        for name, value in schema["properties"].items():
            yield f"{path}/{name}", value
    for key, value in schema.items():
        yield from properties_of(value, f"{path}/{key}")


def test_every_key_has_a_text_to_show(run):
    keys = dict(properties_of(json.loads(run("schema").stdout)))
    assert len(keys) > 100
    for path, schema in keys.items():
        if schema == {}:  # said where the key stands for all variants: {} allows what that says
            assert path.startswith("/$defs/model_object/oneOf/")
            continue
        assert len(schema.get("description", "")) >= 10, f"{path} has no description"
