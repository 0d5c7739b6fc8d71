// SPDX-License-Identifier: Apache-2.0
#include "lockstep/diagnostic.h"

#include "src/base/private_files.h"
#include "tests/catch.h"

using lockstep::Diagnostic;
using lockstep::Diagnostics;
using lockstep::line_column;
using lockstep::LineColumn;
using lockstep::Place;
using lockstep::render;
using lockstep::Source;

namespace {

std::shared_ptr<const Source> source(std::string text, std::string name = "x.json") {
  return std::make_shared<const Source>(Source{std::move(name), std::move(text)});
}

/// Where `part` stands first in `text`.
Place place_of(const std::string& text, const std::string& part, std::string pointer = "") {
  const std::size_t begin = text.find(part);
  return {source(text), begin, begin + part.size(), std::move(pointer)};
}

std::string location(const Place& place) {
  const LineColumn at = line_column(place);
  return std::to_string(at.line) + ":" + std::to_string(at.column);
}

}  // namespace

TEST_CASE("A diagnostic shows its line with a caret and tildes") {
  const std::string text = "{\n  \"layout\": {\n    \"dq\": 2\n  }\n}\n";
  CHECK(render({place_of(text, "\"dq\"", "/layout/dq"), "unknown key \"dq\" in \"layout\"; did you mean \"dp\"?"}) ==
        "x.json:3:5: error: unknown key \"dq\" in \"layout\"; did you mean \"dp\"? [/layout/dq]\n"
        "    3 |     \"dq\": 2\n"
        "      |     ^~~~\n");
}

TEST_CASE("Without a source there is only the sentence") {
  CHECK(render({{}, "expected a file"}) == "error: expected a file\n");
}

TEST_CASE("An empty source has no line to show") {
  CHECK(render({{source(""), 0, 0, ""}, "the file is empty"}) == "x.json:1:1: error: the file is empty\n");
}

TEST_CASE("Tabs stay tabs under the line") {
  CHECK(render({place_of("\t{\t\"a\": 1}", "\"a\""), "m"}) ==
        "x.json:1:4: error: m\n"
        "    1 | \t{\t\"a\": 1}\n"
        "      | \t \t^~~\n");
}

TEST_CASE("A character of several bytes is one column, in the place and in the caret line") {
  CHECK(render({place_of("[\"\u00fc\u20ac\", x]", "x"), "m"}) ==
        "x.json:1:8: error: m\n"
        "    1 | [\"\u00fc\u20ac\", x]\n"
        "      |        ^\n");
}

TEST_CASE("The tildes end with the line, whose end is not shown") {
  CHECK(render({place_of("a {\r\n}\r\n", "{\r\n}"), "m"}) == "x.json:1:3: error: m\n    1 | a {\n      |   ^\n");
  CHECK(render({place_of("a [1,\n2]\n", "[1,\n2]"), "m"}) == "x.json:1:3: error: m\n    1 | a [1,\n      |   ^~~\n");
}

TEST_CASE("A place at the end of the text has its caret behind the last byte") {
  CHECK(render({{source("{"), 1, 1, ""}, "m"}) == "x.json:1:2: error: m\n    1 | {\n      |  ^\n");
  CHECK(render({{source("{"), 99, 99, ""}, "m"}) == "x.json:1:2: error: m\n    1 | {\n      |  ^\n");
}

TEST_CASE("What would disturb a terminal is not shown as it is") {
  CHECK(render({place_of("\x1b[31m \xff \xc2\x9b x", "x"), "m"}) ==
        "x.json:1:11: error: m\n"
        "    1 | \\u001b[31m \uFFFD \\u009b x\n"
        "      |                     ^\n");
  // What is not seen is underlined as wide as it is written.
  CHECK(render({place_of("a \u202Eb\u200B c", "\u202Eb\u200B"), "m"}) ==
        "x.json:1:3: error: m\n"
        "    1 | a \\u202eb\\u200b c\n"
        "      |   ^~~~~~~~~~~~~\n");
}

TEST_CASE("Of a private file the word at fault alone is shown") {
  lockstep::keep_private("private.json");
  const auto file = std::make_shared<const Source>(Source{"private.json", "{ \"key\": word, \"secret\": 1 }\nsecret"});
  const std::size_t at = file->text.find("word");
  CHECK(render({{file, at, file->text.size(), ""}, "m"}) ==
        "private.json:1:10: error: m\n"
        "    1 | word,\n"
        "      | ^~~~~\n");
  CHECK(render({{file, file->text.size(), file->text.size(), ""}, "m"}).find("secret") == std::string::npos);
}

TEST_CASE("A long line is cut around the caret") {
  const std::string text = std::string(5000, 'a') + "XYZ" + std::string(5000, 'b');
  CHECK(render({place_of(text, "XYZ"), "m"}) ==
        "x.json:1:5001: error: m\n"
        "    1 | \u2026" +
            std::string(60, 'a') + "XYZ" + std::string(49, 'b') +
            "\u2026\n"
            "      | " +
            std::string(61, ' ') + "^~~\n");
  CHECK(render({place_of("XY" + text, "XY"), "m"}) ==
        "x.json:1:1: error: m\n"
        "    1 | XY" +
            std::string(110, 'a') +
            "\u2026\n"
            "      | ^~\n");
  CHECK(render({{source(text), text.size() - 1, text.size(), ""}, "m"}) ==
        "x.json:1:10003: error: m\n"
        "    1 | \u2026" +
            std::string(112, 'b') +
            "\n"
            "      | " +
            std::string(112, ' ') + "^\n");
}

TEST_CASE("Line numbers of six digits keep the bars in one column") {
  CHECK(render({place_of(std::string(99'999, '\n') + "x", "x"), "m"}) ==
        "x.json:100000:1: error: m\n100000 | x\n       | ^\n");
}

TEST_CASE("Lines and columns are counted from 1, in characters") {
  const auto text = source("ab\n\n\u00fcc\n");
  CHECK(location({text, 0, 0, ""}) == "1:1");
  CHECK(location({text, 2, 2, ""}) == "1:3");
  CHECK(location({text, 3, 3, ""}) == "2:1");
  CHECK(location({text, 4, 4, ""}) == "3:1");
  CHECK(location({text, 6, 6, ""}) == "3:2");
  CHECK(location({text, 8, 8, ""}) == "4:1");
  CHECK(location({}) == "0:0");
}

TEST_CASE("Lines are right while many sources take turns and come and go") {
  std::vector<std::shared_ptr<const Source>> sources;
  for (std::size_t i = 0; i < 10; ++i) sources.push_back(source(std::string(i, '\n') + "x"));
  for (int round = 0; round < 3; ++round) {
    for (std::size_t i = 0; i < sources.size(); ++i)
      CHECK(line_column({sources[i], i, i, ""}).line == static_cast<int>(i) + 1);
  }
  for (std::size_t i = 0; i < 50; ++i)
    CHECK(line_column({source(std::string(i, '\n')), i, i, ""}).line == static_cast<int>(i) + 1);
}

TEST_CASE("Diagnostics come sorted by file and place, equal ones once") {
  const auto a = source("1234567890", "a"), b = source("1234567890", "b");
  Diagnostics diagnostics;
  CHECK(diagnostics.empty());
  diagnostics.add({b, 1, 2, ""}, "fourth");
  diagnostics.add({a, 5, 6, ""}, "third");
  diagnostics.add({a, 2, 3, ""}, "second");
  diagnostics.add({}, "first");
  diagnostics.add({a, 5, 6, ""}, "third");
  CHECK(diagnostics.size() == 5);
  std::string order;
  for (const Diagnostic& diagnostic : diagnostics.sorted()) order += diagnostic.message + " ";
  CHECK(order == "first second third fourth ");
}

TEST_CASE("An input error says and carries all of its diagnostics") {
  const lockstep::InputError error({{{}, "one"}, {{source("x"), 0, 1, "/p"}, "two"}});
  CHECK(error.diagnostics().size() == 2);
  CHECK(std::string(error.what()) == "error: one\nx.json:1:1: error: two [/p]\n    1 | x\n      | ^\n");
}

TEST_CASE("A long name loses its middle between characters") {
  std::string name = "a", head = "a", tail;
  for (int i = 0; i < 750; ++i) name += "\u00fc";
  for (int i = 0; i < 332; ++i) head += "\u00fc";
  for (int i = 0; i < 166; ++i) tail += "\u00fc";
  const auto file = std::make_shared<const Source>(Source{name, ""});
  CHECK(render({{file, 0, 0, ""}, "m"}) == head + " \u2026 " + tail + ":1:1: error: m\n");
}

TEST_CASE("Of very many mistakes the first thousand are told, and how many more there are") {
  const auto last_of = [](int count) {
    Diagnostics diagnostics;
    for (int i = 0; i < count; ++i) diagnostics.add({nullptr, 0, 0, "/" + std::to_string(i)}, "m");
    const std::vector<Diagnostic> sorted = diagnostics.sorted();
    return std::pair(sorted.size(), sorted.back().message);
  };
  CHECK(last_of(1000) == std::pair(std::size_t{1000}, std::string("m")));
  CHECK(last_of(1001) == std::pair(std::size_t{1001}, std::string("1 more mistake is not shown")));
  CHECK(last_of(1003) == std::pair(std::size_t{1001}, std::string("3 more mistakes are not shown")));
}
