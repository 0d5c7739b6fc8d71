# SPDX-License-Identifier: Apache-2.0
"""How a reduction cuts the selected parameters into one slice per member (docs/scenario-format.md, "geometry")."""

from fractions import Fraction

from expressions import ScenarioError, whole_number


def round_up(value, multiple):
    return -(-value // multiple) * multiple


def slices_of(numel, offset, length, n):
    """Local ranges of a parameter that begins `offset` elements into what is cut in n slices of `length`."""
    result = []
    for member in range(n):
        begin = min(max(member * length - offset, 0), numel)
        result.append((begin, min(max((member + 1) * length - offset, begin), numel)))
    return result


def cut(geometry, items, n, context, separate):
    """One list of n ranges per item; separate(i) says whether item i has a bucket of its own."""
    kind = geometry.get("kind", "parameter")
    context.names = {"n": Fraction(n)}
    if kind == "parameter":
        return [slices_of(item["numel"], 0, -(-item["numel"] // n), n) for item in items]
    if kind == "rows":
        result = []
        for item in items:
            row = max(item["row_length"], 1)
            rows = -(-item["numel"] // row)
            result.append(slices_of(item["numel"], 0, -(-rows // n) * row, n))
        return result
    if kind == "counts":
        counts = geometry["counts"]
        if len(counts) != n:
            raise ScenarioError(f"{len(counts)} counts for {n} ranks")
        result = []
        for item in items:
            if item["numel"] % sum(counts):
                raise ScenarioError(f"{sum(counts)} parts do not divide {item['numel']} elements")
            part, ranges, begin = item["numel"] // sum(counts), [], 0
            for count in counts:
                ranges.append((begin, begin + count * part))
                begin += count * part
            result.append(ranges)
        return result
    together = {}  # built per chunk and dtype
    for i, item in enumerate(items):
        together.setdefault((item["chunk"], item["dtype"]), []).append(i)
    result = [None] * len(items)
    for members in together.values():
        fill = flat if kind == "flat" else bucket
        fill(geometry, items, members, n, context, separate, result)
    return result


def flat(geometry, items, members, n, context, _separate, result):
    total = round_up(sum(items[i]["numel"] for i in members), whole_number(geometry.get("align", n), context, 1))
    if total % n:
        raise ScenarioError(f"{n} ranks do not divide {total} elements")
    offset = 0
    for i in members:
        result[i] = slices_of(items[i]["numel"], offset, total // n, n)
        offset += items[i]["numel"]


def bucket(geometry, items, members, n, context, separate, result):
    align_parameter = whole_number(geometry.get("align_parameter", 64), context, 1)
    align_bucket = whole_number(geometry.get("align_bucket", "lcm(n,128)"), context, 1)
    size = whole_number(geometry["size"], context, 1) if geometry.get("size") is not None else None
    position, begin, inside = 0, 0, {}

    def close():
        nonlocal position, begin, inside
        end = round_up(position, align_bucket)
        if (end - begin) % n:
            raise ScenarioError(f"{n} ranks do not divide a bucket of {end - begin} elements")
        for i, start in inside.items():
            result[i] = slices_of(items[i]["numel"], start - begin, (end - begin) // n, n)
        position, begin, inside = end, end, {}

    for i in reversed(members):
        if inside and separate(i):
            close()
        position = round_up(position, align_parameter)
        inside[i] = position
        position += items[i]["numel"]
        if separate(i) or (size is not None and position - begin >= size):
            close()
    if inside:
        close()
