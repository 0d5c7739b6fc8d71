// SPDX-License-Identifier: Apache-2.0
#include <string>

#include "lockstep/json.h"
#include "tests/base/parsed.h"
#include "tests/catch.h"

using lockstep::Diagnostics;
using lockstep::Json;
using lockstep::Place;
using lockstep::Source;

namespace {

/// The diagnostics of `text` as "LINE:COLUMN-COLUMN MESSAGE [POINTER]", one a line.
std::string errors(std::string text) {
  Diagnostics diagnostics;
  const Json value = parse_json(std::make_shared<const Source>(Source{"x", std::move(text)}), diagnostics);
  std::string result;
  for (const auto& [place, message] : diagnostics.sorted()) {
    const auto at = line_column(place);
    result += std::to_string(at.line) + ":" + std::to_string(at.column) + "+" +
              std::to_string(place.end - place.begin) + " " + message;
    if (!place.pointer.text().empty()) result += " [" + place.pointer.text() + "]";
    result += "\n";
  }
  return result;
}

std::string written(const Place& place) { return place.source->text.substr(place.begin, place.end - place.begin); }

/// Every value's text and pointer, depth first.
void list_places(const Json& value, std::string& out) {
  out += value.place().pointer.text() + " = " + written(value.place()) + "\n";
  for (const Json& item : value.items()) list_places(item, out);
  for (const Json::Member& member : value.members()) {
    out += member.key_place.pointer.text() + " : " + written(member.key_place) + "\n";
    list_places(member.value, out);
  }
}

}  // namespace

TEST_CASE("Every value and key has its exact place and pointer") {
  std::string places;
  list_places(parsed(R"( {"a" : [1 ,-0.50e+1,true],"b/~":{ "\"k\"":"\\\"" , "n": null}, "":[] , "f":false} )"), places);
  CHECK(places ==
        " = {\"a\" : [1 ,-0.50e+1,true],\"b/~\":{ \"\\\"k\\\"\":\"\\\\\\\"\" , \"n\": null}, \"\":[] , \"f\":false}\n"
        "/a : \"a\"\n"
        "/a = [1 ,-0.50e+1,true]\n"
        "/a/0 = 1\n"
        "/a/1 = -0.50e+1\n"
        "/a/2 = true\n"
        "/b~1~0 : \"b/~\"\n"
        "/b~1~0 = { \"\\\"k\\\"\":\"\\\\\\\"\" , \"n\": null}\n"
        "/b~1~0/\"k\" : \"\\\"k\\\"\"\n"
        "/b~1~0/\"k\" = \"\\\\\\\"\"\n"
        "/b~1~0/n : \"n\"\n"
        "/b~1~0/n = null\n"
        "/ : \"\"\n"
        "/ = []\n"
        "/f : \"f\"\n"
        "/f = false\n");
}

TEST_CASE("Places are right at the very ends of the text") {
  CHECK(written(parsed("12").place()) == "12");
  CHECK(written(parsed("\n0").place()) == "0");
  CHECK(written(parsed("null").place()) == "null");
  CHECK(written(parsed("\"\"").place()) == "\"\"");
}

TEST_CASE("Numbers are kept as written") {
  const Json value =
      parsed("[0.1, 5e8, -0, 1E+2, 123456789012345678901234567890, 0.1000000000000000000000001, 1e-400]");
  std::string numbers;
  for (const Json& item : value.items()) numbers += item.text() + " ";
  CHECK(numbers == "0.1 5e8 -0 1E+2 123456789012345678901234567890 0.1000000000000000000000001 1e-400 ");
}

TEST_CASE("Strings are decoded") {
  CHECK(parsed(R"("\u00fc\n\/\ud83d\ude00\u0000")").text() == std::string("\u00fc\n/\U0001F600\0", 9));
}

TEST_CASE("Comments and trailing commas are allowed, and places do not move") {
  const Json value = parsed(
      "// a comment, with \"quotes\"\n"
      "{ /* one, */ \"a\" /* : */ : [1, /* ] */ 2, // two\n"
      "],\n"
      "  \"url\": \"http://x/*no*/ ,]\", /**/ }\n"
      "/* \u00fc\n */ // end");
  CHECK(value.members().size() == 2);
  CHECK(value.find("a")->items().size() == 2);
  CHECK(value.find("url")->text() == "http://x/*no*/ ,]");
  CHECK(written(value.find("a")->items()[1].place()) == "2");
  CHECK(line_column(value.members()[1].key_place).line == 4);
}

TEST_CASE("Escaped quotes and backslashes do not end a string in front of what looks like a comment") {
  const Json value = parsed(R"(["a\" /* ", "\\" /* " */, "\" // no", "/* no */"])");
  CHECK(value.items().size() == 4);
  CHECK(value.items()[2].text() == "\" // no");
}

TEST_CASE("A comma is trailing only behind a value") {
  CHECK(errors("[,]") == "1:2+1 expected a value or \"]\", found \",\"; there is a comma too many\n");
  CHECK(errors("{,}") == "1:2+1 expected a key in double quotes or \"}\", found \",\"; there is a comma too many\n");
  CHECK(errors("[1,,]") == "1:4+1 expected a value, found \",\"; there is a comma too many\n");
  CHECK(errors("{\"a\":1,,\"b\":2}") ==
        "1:8+1 expected a key in double quotes, found \",\"; there is a comma too many\n");
  CHECK(errors("{\"a\":,}") ==
        "1:6+1 expected a value for the key \"a\", found \",\"; there is a comma too many [/a]\n");
  CHECK(errors("{},") == "1:3+1 expected the end of the file, found \",\"\n");
}

TEST_CASE("Each key given twice is reported, and the first is kept") {
  CHECK(errors("{\"a\": 1,\n \"b\": {\"c\": 1, \"c\": 2},\n \"a\": 3,\n \"a\": 4}") ==
        "2:16+3 the key \"c\" is given twice, first in line 2; keep one of them [/b/c]\n"
        "3:2+3 the key \"a\" is given twice, first in line 1; keep one of them [/a]\n"
        "4:2+3 the key \"a\" is given twice, first in line 1; keep one of them [/a]\n");
  Diagnostics diagnostics;
  const Json value = parse_json(std::make_shared<const Source>(Source{"x", R"({"a": 1, "\u0061": 2})"}), diagnostics);
  CHECK(diagnostics.size() == 1);
  CHECK(value.members().size() == 1);
  CHECK(value.find("a")->text() == "1");
}

TEST_CASE("After a syntax error the value is null") {
  Diagnostics diagnostics;
  CHECK(parse_json(std::make_shared<const Source>(Source{"x", "{\"a\": 1"}), diagnostics).is_null());
  CHECK(diagnostics.size() == 1);
}

TEST_CASE("A file that holds no value says so") {
  CHECK(errors("") == "1:1+0 the file is empty; expected a JSON object\n");
  CHECK(errors(" \r\n\t") == "1:1+0 the file is empty; expected a JSON object\n");
  CHECK(errors("// a\n/* b */") == "1:1+0 the file holds nothing but comments; expected a JSON object\n");
}

TEST_CASE("A file that is no UTF-8 text says so") {
  CHECK(errors("\xEF\xBB\xBF{}") == "1:1+3 the file begins with a byte order mark; expected UTF-8 without one\n");
  CHECK(errors("\xFF\xFE{") == "1:1+2 the file is written in UTF-16; expected UTF-8\n");
  CHECK(errors(std::string("{\0}", 3)) == "1:2+1 expected text, found a NUL byte; this is no JSON file\n");
  CHECK(errors("{\n\"a\": \"\xE9\"}") ==
        "2:7+1 expected text in UTF-8, found the byte 0xE9, which has no place there\n");
  for (const char* bytes : {"\xC0\x80", "\xED\xA0\x80", "\xF4\x90\x80\x80", "\xE2\x82", "\x80", "\xF8"}) {
    CHECK(errors(std::string("// ") + bytes).find("expected text in UTF-8") != std::string::npos);
  }
}

TEST_CASE("Nesting is limited") {
  const std::string open(200, '['), close(200, ']');
  CHECK(parsed(open + close).is_array());
  const std::string found = errors(open + "{}" + close);
  CHECK(found.substr(0, found.find(" [/")) == "1:201+1 expected at most 200 levels of nesting, found more");
  CHECK(errors(std::string(100'000, '[')).substr(0, 5) == "1:201");
}

TEST_CASE("Pointers are limited, so that long keys do not multiply") {
  const std::string key(2000, 'k');
  CHECK(parsed("{\"" + key + "\": {\"a\": 1}}").is_object());
  CHECK(errors("{\"" + key + "\": {\"" + key + "\": 1}}") ==
        "1:2007+2002 the keys around this value are 4002 bytes long together; expected at most 4000\n");
}

TEST_CASE("What is missing at the end of the file is said with the line of what is open") {
  CHECK(errors("{\n") ==
        "1:2+0 expected a key in double quotes or \"}\", found the end of the file; "
        "the object that begins in line 1 is not closed\n");
  CHECK(errors("{\n\"a\": [1,\n2 // x\n") ==
        "3:2+0 expected \",\" or \"]\" after an item of the array, found the end of the file; "
        "the array that begins in line 2 is not closed [/a]\n");
  CHECK(errors("{\"a\"") ==
        "1:5+0 expected \":\" after the key \"a\", found the end of the file; "
        "the object that begins in line 1 is not closed [/a]\n");
  CHECK(errors("{\"a\":") ==
        "1:6+0 expected a value for the key \"a\", found the end of the file; "
        "the object that begins in line 1 is not closed [/a]\n");
  CHECK(errors("{} /* x") == "1:4+2 this comment is not closed; expected \"*/\" after it\n");
}

TEST_CASE("A missing comma is named") {
  CHECK(errors("{\"a\": 1\n \"b\": 2}") ==
        "2:2+3 expected \",\" or \"}\" after the value of \"a\", found the string \"b\"; "
        "a comma is missing\n");
  CHECK(errors("[1 2]") ==
        "1:4+1 expected \",\" or \"]\" after an item of the array, found the number 2; a comma is missing\n");
  CHECK(errors("[{} {}]") ==
        "1:5+1 expected \",\" or \"]\" after an item of the array, found \"{\"; a comma is missing\n");
  CHECK(errors("{\"a\": 1; \"b\": 2}") == "1:8+1 expected \",\" or \"}\" after the value of \"a\", found \";\"\n");
}

TEST_CASE("A quote inside a string is recognized") {
  CHECK(errors(R"({"a": "say "hi" now"})") ==
        "1:13+2 expected \",\" or \"}\" after the value of \"a\", found the word hi; "
        "a quote inside a string is written \\\"\n");
}

TEST_CASE("The wrong bracket is named with the line of the right one") {
  CHECK(errors("{\n\"a\": [1,\n2}") ==
        "3:2+1 expected \",\" or \"]\" after an item of the array, found \"}\"; "
        "the array that begins in line 2 is closed by \"]\" [/a]\n");
  CHECK(errors("{\"a\": 1]") ==
        "1:8+1 expected \",\" or \"}\" after the value of \"a\", found \"]\"; "
        "the object that begins in line 1 is closed by \"}\"\n");
}

TEST_CASE("Keys without double quotes are named") {
  CHECK(errors("{dp: 1}") == "1:2+2 expected a key in double quotes or \"}\", found the word dp; write \"dp\"\n");
  CHECK(errors("{\"a\": 1, 'b': 1}") ==
        "1:10+1 expected a key in double quotes, found a single quote; JSON has double quotes only\n");
  CHECK(errors("{1: 2}") == "1:2+1 expected a key in double quotes or \"}\", found the number 1\n");
  CHECK(errors("{\u201ca\u201d: 1}") ==
        "1:2+3 expected a key in double quotes or \"}\", found \"\u201c\"; "
        "JSON has straight double quotes only\n");
}

TEST_CASE("A missing colon is named") {
  CHECK(errors("{\"a\" = 1}") == "1:6+1 expected \":\" after the key \"a\", found \"=\" [/a]\n");
  CHECK(errors("{\"a\", \"b\"}") == "1:5+1 expected \":\" after the key \"a\", found \",\" [/a]\n");
}

TEST_CASE("Words of other languages are answered with JSON's") {
  CHECK(errors("{\"a\": True}") == "1:7+4 expected a value for the key \"a\", found the word True; write true [/a]\n");
  CHECK(errors("[None]") == "1:2+4 expected a value or \"]\", found the word None; write null\n");
  CHECK(errors("[1, NaN]") == "1:5+3 expected a value, found the word NaN; JSON has no such number\n");
  CHECK(errors("[adam]") ==
        "1:2+4 expected a value or \"]\", found the word adam; strings are written in double quotes\n");
  CHECK(errors("{\"a\": truex}") ==
        "1:7+5 expected a value for the key \"a\", found the word truex; strings are written in double quotes [/a]\n");
  CHECK(errors("{\"a\": 'x'}") ==
        "1:7+1 expected a value for the key \"a\", found a single quote; JSON has double quotes only [/a]\n");
  CHECK(errors("# x\n{}") == "1:1+1 expected a value, found \"#\"; comments begin with //\n");
  CHECK(errors("{\"a\": }") == "1:7+1 expected a value for the key \"a\", found \"}\" [/a]\n");
}

TEST_CASE("Malformed numbers are shown whole") {
  for (const std::string number :
       {"01", "+1", ".5", "1.", "0x10", "1e", "1.5.2", "-", "1_000", "-01", "1e5e5", "1-2"}) {
    CHECK(errors("{\"a\": " + number + "}") == "1:7+" + std::to_string(number.size()) +
                                                   " expected a value for the key \"a\", found " + number +
                                                   "; numbers are written like 12, -3, 0.5 or 5e8 [/a]\n");
  }
  CHECK(errors("01") == "1:1+2 expected a value, found 01; numbers are written like 12, -3, 0.5 or 5e8\n");
  CHECK(errors("[1e999]") == "1:2+5 this number is too large; expected one below 1e308\n");
}

TEST_CASE("Mistakes inside strings are pointed at") {
  CHECK(errors("{\"a\": \"x\n\"}") ==
        "1:7+2 this string is not closed; expected a double quote before the end of the line [/a]\n");
  CHECK(errors("{\"a: 1}\r\n") ==
        "1:2+6 this string is not closed; expected a double quote before the end of the line\n");
  CHECK(errors("\"\\") == "1:1+2 this string is not closed; expected a double quote before the end of the line\n");
  CHECK(errors("[\"a\\qb\"]") == "1:4+2 \"\\q\" is no escape of JSON; a backslash itself is written \\\\\n");
  CHECK(errors("[\"\\\u00fc\"]") == "1:3+3 \"\\\u00fc\" is no escape of JSON; a backslash itself is written \\\\\n");
  CHECK(errors("[\"\\u12g4\"]") == "1:3+2 expected four hexadecimal digits after \\u\n");
  CHECK(errors("[\"\\ud800\"]") == "1:3+6 \\ud800 is half of a character; expected a pair such as \\ud83d\\ude00\n");
  CHECK(errors("[\"\\udc00\\ud800\"]") ==
        "1:3+6 \\udc00 is half of a character; expected a pair such as \\ud83d\\ude00\n");
  CHECK(errors("[\"a\tb\"]") == "1:4+1 a string cannot hold a tab as it is; write \\t\n");
  CHECK(errors("[\"a\x01\"]") == "1:4+1 a string cannot hold the control character 0x01 as it is; write \\u0001\n");
}

TEST_CASE("Text behind the value is refused") {
  CHECK(errors("{} x") == "1:4+1 expected the end of the file, found the word x\n");
  CHECK(errors("{}}") == "1:3+1 expected the end of the file, found \"}\"\n");
  CHECK(errors("{}\n{}") == "2:1+1 expected the end of the file, found \"{\"\n");
}

TEST_CASE("No prefix and no damaged byte of a file crashes the parser or goes unexplained") {
  const std::string good =
      "{\"a\": [1, -2.5e3, true], // c\n \"b\": {\"\\u00fc\\n\": null, \"x\": \"y\",}, /* d */ \"e\": []}";
  for (std::size_t i = 0; i < good.size(); ++i) {
    CHECK_FALSE(errors(good.substr(0, i)).empty());
    for (const char byte : std::string("\0\n\"\\{}[],:/*'x0-.e\xC3 ", 21)) {
      std::string damaged = good;
      damaged[i] = byte;
      for (const std::string& text : {damaged, damaged.substr(0, i + 1)}) {
        Diagnostics diagnostics;
        const Json value = parse_json(std::make_shared<const Source>(Source{"x", text}), diagnostics);
        std::string places;
        if (diagnostics.empty()) list_places(value, places);
        for (const auto& diagnostic : diagnostics.sorted()) {
          places += render(diagnostic);
          CHECK(diagnostic.place.begin <= diagnostic.place.end);
          CHECK(diagnostic.place.end <= text.size());
        }
        CHECK_FALSE(places.empty());
      }
    }
  }
}
