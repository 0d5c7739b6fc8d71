# SPDX-License-Identifier: Apache-2.0
"""Conditions and factors on sizes, ranks and micro-batches, spelled in many ways.

Two spellings of one condition are the attack: a prover that reads one of them at a few sizes takes both for the same, and
they may differ at one size that it does not look at. Numbers are those of real files: sizes of nodes, of pods, of layouts.
"""

# What real thresholds compare with: ranks of a node or a pod, stages, buckets, primes that no power of two divides.
NUMBERS = (1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 7, 8, 8, 9, 12, 13, 13, 16, 17, 24, 32, 39, 40, 41, 64, 64, 65, 100, 128, 200, 200, 256, 1000)


class Speller:
    """Conditions of one scenario: over these open axes, and with `framework` over options and names of `let` too."""

    def __init__(self, random, axes, framework):
        self.random, self.axes, self.framework = random, axes, framework
        self.options, self.lets, self.numbers = {}, {}, []

    def chance(self, probability):
        return self.random.random() < probability

    def one_of(self, *choices):
        return self.random.choice(choices)

    def number(self):
        """A number of the file; the same ones come again, so that conditions meet."""
        if not self.numbers or self.chance(0.4):
            self.numbers.append(self.random.choice(NUMBERS))
        return self.random.choice(self.numbers)

    # Numbers

    def spelled(self, number):
        """A whole number as an expression."""
        if self.framework and self.chance(0.2):
            return self.option(number) if self.chance(0.7) else self.let(str(number))
        forms = [str(number)] * 4
        forms += [f"{number + 1} - 1", f"{2 * number} / 2", f"min({number}, {number + 3})", f"max(1, {number})" if number > 0 else f"max({number}, 0)"]
        forms += [f"{number} * virtual_stages", f"{number - 1} + steps", f"floor({2 * number + 1} / 2)", f"ceil({number} - 1/2)"]
        return "(" + self.random.choice(forms) + ")" if number > 0 else str(number)

    def option(self, value):
        """An option of the framework whose default, or whose given value, is this."""
        name = f"o{len(self.options)}"
        self.options[name] = value
        return name

    def let(self, text):
        name = f"l{len(self.lets)}"
        self.lets[name] = text
        return name

    def chosen(self, text):
        """A condition by way of a name whose value it chooses: a word, or a number."""
        if self.chance(0.5):
            return f"{self.let({'if': text, 'then': chr(39) + 'some' + chr(39), 'else': chr(39) + 'other' + chr(39)})} == 'some'"
        return f"{self.let({'if': text, 'then': '7', 'else': {'if': 'world > 5', 'then': '2', 'else': '1'}})} > {self.spelled(3)}"

    def hidden(self, text, is_condition=True):
        """The same, by way of a few names of `let`."""
        if self.framework and is_condition and self.chance(0.1):
            text = self.chosen(text)
        while self.framework and self.chance(0.35):
            text = self.let(text)
            if is_condition and self.chance(0.2):
                text = f"not {self.let(f'not {text}')}"
        return text

    def size(self):
        axis = self.random.choice(self.axes)
        return self.one_of(axis, axis, axis, axis, "world", "micro_batches", f"{axis} * {self.random.choice(self.axes)}", f"{axis} + {self.random.choice(self.axes)}",
                           f"world / {axis}", f"max({axis}, {self.random.choice(self.axes)})", f"lcm({axis}, {self.random.choice(self.axes)})")  # fmt: skip

    # Conditions on sizes

    def above(self, size, number, exact=True):
        """Whether a size is above a number; with `exact` false perhaps but nearly."""
        k = self.spelled
        forms = [
            f"{size} > {k(number)}",
            f"{size} >= {k(number + 1)}",
            f"not {size} <= {k(number)}",
            f"{k(number)} < {size}",
            f"{size} - 1 >= {k(number)}",
            f"max({size}, {k(number + 1)}) == {size}",
            f"min({size}, {k(number + 1)}) > {number}",
            f"floor(({size}) / {k(number + 1)}) >= 1",
            f"ceil(({size}) / {k(number)}) > 1" if number > 0 else f"{size} > 0",
            f"({size}) * ({size}) > {number * number}",
            f"1 / ({size}) < 1 / {k(number)}" if number > 0 else f"{size} > 0",
            f"{size} > {number} or {size} == {number + 1}",
            f"{size} != {number} and {size} > {max(number - 1, 0)}",
            f"floor((2 * ({size}) - 1) / 2) >= {k(number)}",
            f"max({size}, {number}) - {number} > 0",
            f"lcm(min({size}, {number + 1}), {number + 1}) == {size} or {size} > {k(number)}" if number > 0 else f"{size} > 0",
        ]
        if not exact:
            other = self.random.choice((number + 1, 2 * number, number + 2))
            forms = [
                f"{size} > {k(number)} and {size} != {k(other)}",
                f"{size} > {k(number + 1)}",
                f"{size} > {k(number)} and ({size} - {other}) * ({size} - {other + 8}) != 0",
                f"{size} > {number} and {size} / {other} != floor(({size}) / {other})",
                f"{size} > {k(number)} and world != {k(other * self.number())}",
            ]
        return self.random.choice(forms)

    def equals(self, size, number, exact=True):
        k = self.spelled
        forms = [
            f"{size} == {k(number)}",
            f"not {size} != {k(number)}",
            f"{size} >= {k(number)} and {size} <= {number}",
            f"({size} - {k(number)}) * ({size} - {number}) == 0",
            f"({size}) * ({size}) == {number * number}",
            f"{size} - {k(number)} == 0",
            f"max({size}, {number}) == min({size}, {k(number)})",
            f"1 / ({size}) == 1 / {k(number)}" if number > 0 else f"{size} == {number}",
            f"{k(number)} / ({size}) == ({size}) / {k(number)}" if number > 0 else f"{size} == {number}",
            f"not ({size} < {number} or {number} < {size})",
        ]
        if not exact:
            other = self.random.choice((number + 1, 2 * number, number + 2, 64, 200))
            forms = [
                f"{size} == {k(number)} or {size} == {k(other)}",
                f"({size} - {number}) * ({size} - {other}) == 0",
                f"{size} == {k(number)} and world != {k(other)}",
                f"({size}) / {number} == floor(({size}) / {number}) and {size} > 0",
            ]
        return self.random.choice(forms)

    def of_sizes(self, depth=2):
        """Any condition that speaks of sizes alone."""
        if depth and self.chance(0.3):
            left, right = self.of_sizes(depth - 1), self.of_sizes(depth - 1)
            return self.hidden(self.one_of(f"({left}) and ({right})", f"({left}) or ({right})", f"not ({left})"))
        size, number = self.size(), self.number()
        other = self.random.choice(self.axes)
        form = self.random.randrange(8)
        if form < 3:
            text = self.above(size, number)
        elif form < 5:
            text = self.equals(size, number)
        elif form == 5:
            text = self.one_of(f"{size} == {other}", f"{size} > {other}", f"{size} < 2 * {other}", f"{size} != {other} + {number}")
        elif form == 6:
            text = self.one_of(f"({size}) / {number} == floor(({size}) / {number})", f"lcm({other}, {number}) == {other}", f"lcm({other}, {number}) > {number}")
        else:
            text = self.one_of("virtual_stages > 1", "sequence_parallel", f"steps > {number}", "steps == virtual_stages", "instance_groups_agree", "pipeline_groups_agree")
        return self.hidden(text)

    def plain_of_sizes(self):
        """Without options and names of the framework's file, which a scenario does not know."""
        framework, self.framework = self.framework, False
        text = self.of_sizes()
        self.framework = framework
        return text

    def pair_of_sizes(self):
        """Two conditions on sizes: of one meaning, or of nearly one."""
        size, number = self.size(), self.number()
        form = self.random.choice((self.above, self.equals))
        exact = self.chance(0.6)
        return self.hidden(form(size, number)), self.hidden(form(size, number, exact))

    # Conditions on ranks

    def coordinate(self, axis, number, exact=True):
        """Whether a rank has this coordinate, counted from the end where it is negative."""
        if number >= 0:
            forms = [f"rank.{axis} == {self.spelled(number)}", f"{number} == rank.{axis}", f"not rank.{axis} != {number}"]
            forms += [f"rank.{axis} >= {number} and rank.{axis} < {self.spelled(number + 1)}", f"rank.{axis} > {number - 1} and not rank.{axis} > {number}"]
            forms += [f"rank.{axis} > {2 * number - 1}/2 and rank.{axis} < {2 * number + 1}/2"]
            if number == 0:
                forms += [f"rank.{axis} == first", f"rank.{axis} < 1", f"rank.{axis} <= first"]
        else:
            forms = [f"rank.{axis} == {axis} - {-number}", f"rank.{axis} == {axis} + 1 - {1 - number}"]
            if number == -1:
                forms += [f"rank.{axis} == last", f"rank.{axis} >= last", f"not rank.{axis} < last", f"rank.{axis} > {axis} - 2"]
        if not exact:
            forms = [f"({forms[0]}) and {axis} != {self.number()}", f"rank.{axis} == {abs(number) + 1}", f"rank.{axis} == min({abs(number)}, {axis} - 1)"]
            forms += [f"({forms[0]}) or rank.{axis} == {self.number()}", f"rank.{axis} == floor({axis} / 2)", f"rank.{axis} + 1 == {abs(number) + 1}"]
        return self.random.choice(forms)

    def of_ranks(self):
        axis = self.random.choice(self.axes)
        number = self.one_of(0, 1, 2, 3, -1, -2, self.number())
        text = self.coordinate(axis, number, self.chance(0.8))
        if self.chance(0.3):
            text = f"({text}) {self.one_of('and', 'or', 'and not')} ({self.one_of(self.of_sizes(0), self.coordinate(self.random.choice(self.axes), self.one_of(0, 1, -1)))})"
        return text

    def pair_of_ranks(self):
        axis = self.random.choice(self.axes)
        number = self.one_of(0, 1, 2, -1, -2, self.number())
        if self.chance(0.35):  # one from the start and one from the end, which are the same at one size
            return self.coordinate(axis, number), self.coordinate(axis, self.one_of(-1, -2, 0, 1, self.number()))
        return self.coordinate(axis, number), self.coordinate(axis, number, self.chance(0.6))

    # Factors

    def factor(self):
        """A factor that is 1 at some sizes, or at all."""
        axis, number = self.random.choice(self.axes), self.number()
        other = self.random.choice(self.axes)
        forms = [
            f"min({axis}, {number}) / {axis}",
            f"floor({axis} / {number + 1}) + 1",
            f"max({axis}, {number}) / {axis}",
            f"lcm({axis}, {number}) / {axis}",
            f"1 + ({axis} - 1) * ({axis} - 2) * ({axis} - {number})",
            f"1 + ({axis} - {number}) * ({other} - {self.number()})",
            f"({axis} - {number}) * ({axis} - {number}) + 1",
            f"{axis} / {number}",
            f"{axis} * {other} / {number}",
            f"{axis} / {other}",
            f"ceil({axis} / {number})",
            f"{axis} * {axis} / ({axis} * {axis})",
            f"({axis} + {number}) / ({number} + {axis})",
            f"({axis} * {axis} - 1) / ({axis} + 1) - {axis} + 2",
            f"1 + ({axis} - {other}) * ({axis} + {other}) - {axis} * {axis} + {other} * {other}",
            "micro_batches / micro_batches",
            f"world / ({axis} * {other})",
            f"{number} / micro_batches",
            f"1 + (micro_batches - {number}) * ({axis} - {number})",
        ]
        return self.hidden(self.random.choice(forms), False)
