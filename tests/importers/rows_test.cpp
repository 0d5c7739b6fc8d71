// SPDX-License-Identifier: Apache-2.0
// Every row of every table of keys, with values that it accepts and values that it refuses.
#include <algorithm>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/importer.h"
#include "src/importers/key_table.h"
#include "src/importers/scenario_builder.h"
#include "src/importers/tables.h"
#include "tests/cases.h"
#include "tests/catch.h"
#include "tests/importers/cases.h"

using namespace lockstep;
using importers::is_readable;

namespace {

Json read_json(const std::string& name, const std::string& text) {
  Diagnostics diagnostics;
  Json json = parse_json(std::make_shared<const Source>(Source{name, text}), diagnostics);
  REQUIRE(diagnostics.empty());
  return json;
}

/// tests/importers/rows.jsonc
const Json& listed() {
  static const Json all = [] {
    std::ifstream stream(LOCKSTEP_SOURCE_DIR "/tests/importers/rows.jsonc", std::ios::binary);
    return read_json("rows.jsonc", {std::istreambuf_iterator<char>(stream), {}});
  }();
  return all;
}

/// `object` with the value at "outer.inner". What has dots in its name stands at the top in Megatron's files alone.
Json with_value(const Json& object, const std::string& path, const Json& value) {
  const std::size_t dot = path.find('.');
  Json result = object.is_object() ? object : Json::object();
  if (dot == std::string::npos) {
    result.set(path, value);
    return result;
  }
  const Json* inner = result.find(path.substr(0, dot));
  result.set(path.substr(0, dot), with_value(inner != nullptr ? *inner : Json::object(), path.substr(dot + 1), value));
  return result;
}

/// A table's format with its configuration in rows.jsonc.
class Format {
 public:
  explicit Format(const std::string& name)
      : name_(name), listed_(*listed().find(name)), file_(listed_.find("file")->text()) {}

  bool is_read() const { return is_readable(file_); }
  const Json* row(const std::string& key) const { return listed_.find("rows")->find(key); }
  const Json& rows() const { return *listed_.find("rows"); }

  /// The mistakes that are told at the key, where it has the value; "" where there is none.
  std::string mistakes(const std::string& key, const Json& value) const {
    Json configuration = *listed_.find("base");
    const Json* row = this->row(key);
    if (const Json* with = row != nullptr ? row->find("with") : nullptr) {
      for (const Json::Member& member : with->members())
        configuration = with_value(configuration, member.key, member.value);
    }
    ImportRequest request;
    request.format = name_;
    request.world = 8;
    configuration = with_value(configuration, key, value);
    request.files = {std::make_shared<const Source>(Source{file_, write_json(configuration)})};
    std::string text;
    try {
      import_configuration(request);
    } catch (const InputError& error) {
      for (const Diagnostic& diagnostic : error.diagnostics()) {
        if (diagnostic.message.starts_with(key + ": ")) text += diagnostic.message + "\n";
      }
    }
    return text;
  }

 private:
  std::string name_;
  const Json& listed_;
  std::string file_;
};

std::vector<Json> values(const std::string& text) { return read_json("values", text).items(); }

bool has(const std::vector<Json>& values, const Json& value) {
  return std::any_of(values.begin(), values.end(), [&](const Json& one) {
    return one.same_as(value) ||
           (one.is_string() && value.is_string() && importers::same_word(one.text(), value.text()));
  });
}

void check(const Format& format, const std::string& key, const std::vector<Json>& accepted,
           const std::vector<Json>& refused, const std::string& because = "") {
  for (const Json& value : accepted) {
    INFO("accepted: " << key << " = " << write_json(value));
    CHECK(format.mistakes(key, value).empty());
  }
  for (const Json& value : refused) {
    INFO("refused: " << key << " = " << write_json(value));
    const std::string told = format.mistakes(key, value);
    CHECK_FALSE(told.empty());
    CHECK((because.empty() || told.find(because) != std::string::npos ||
           told.find("expected true or false") != std::string::npos));
  }
}

/// Values of each kind: a row with "only" refuses those that are not in it.
const std::vector<Json>& any_values() {
  static const std::vector<Json> all = values(R"([true, false, 0, 7, "x", ["x"], []])");
  return all;
}

void check_row(const Format& format, const std::string& key, const importers::ConfigurationKey& row) {
  INFO(key);
  if (const Json* known = format.row(key)) {
    check(format, key, known->find("accepted")->items(), known->find("refused")->items());
  } else if (row.refuses) {
    std::vector<Json> refused;
    for (const Json& value : any_values()) {
      if (!has(row.only, value)) refused.push_back(value);
    }
    check(format, key, row.only, refused, row.because);
    CHECK(format.mistakes(key, Json()).empty());  // null is no value
  } else if (row.type == "integer") {
    check(format, key, values("[2, \"2\"]"), values(R"(["x", 1.5, true, [2]])"));
  } else if (row.type == "number") {
    check(format, key, values("[2, 0.5]"), values(R"(["x", true, [2]])"));
  } else if (row.type == "boolean") {
    check(format, key, values(R"([true, false, "true"])"), values(R"(["x", 3, [true]])"));
  } else if (row.type == "word") {
    std::vector<Json> words;
    for (const std::string& word : row.words) words.push_back(Json::string(word));
    check(format, key, words, values(R"(["x", 99, ["x"]])"));
  } else {
    FAIL_CHECK("rows.jsonc says nothing of what it accepts and refuses");
  }
}

}  // namespace

TEST_CASE("every row of every table refuses what it has to, and accepts what it lists") {
  for (const auto& [name, text] : importers::embedded_tables()) {
    if (name == "megatron_arguments" || name == "megatron_forks") continue;
    INFO(name);
    const Format format(name);
    if (!format.is_read()) continue;
    const importers::KeyTable table(name);
    std::size_t number = 0;
    for (const auto& [key, row] : table.rows()) {
      if (!lockstep::test::is_tried(number++)) continue;
      const std::size_t star = key.find('*');
      if (star == std::string::npos) {
        check_row(format, key, row);
      } else if (key.ends_with('*')) {
        check_row(format, key.substr(0, star), row);
        check_row(format, key.substr(0, star) + ".inner", row);
      } else {
        FAIL_CHECK("a pattern whose star is not at its end: " << key);
      }
    }
    for (const Json::Member& member : format.rows().members()) {
      INFO(member.key);
      CHECK((table.row(member.key) != nullptr || importers::KeyTable("deepspeed").row(member.key) != nullptr));
    }
  }
}

TEST_CASE("a row that goes on as it is takes no list and no object for its value") {
  for (const auto& [name, text] : importers::embedded_tables()) {
    if (name == "megatron_arguments" || name == "megatron_forks") continue;
    const Format format(name);
    if (!format.is_read()) continue;
    const importers::KeyTable table(name);
    for (const auto& [key, row] : table.rows()) {
      if (row.goes_to.empty()) continue;
      INFO(name << " " << key);
      CHECK_FALSE(format.mistakes(key, Json::array({})).empty());
      CHECK_FALSE(format.mistakes(key, Json::object()).empty());
    }
  }
}

TEST_CASE("the default of every argument of Megatron-LM is accepted") {
  const Format format("megatron");
  if (!format.is_read()) return;
  const importers::KeyTable table("megatron");
  const Json arguments = read_json("arguments", importers::embedded_tables().at("megatron_arguments"));
  int seen = 0;
  for (const Json& row : arguments.find("arguments")->items()) {
    const std::string key = row.find("key")->text();
    const Json* otherwise = row.find("default");
    if (table.row(key) == nullptr || otherwise == nullptr) continue;
    INFO(key);
    CHECK(format.mistakes(key, otherwise->at({})).empty());
    ++seen;
  }
  CHECK(seen > 80);
}
