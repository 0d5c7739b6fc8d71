// SPDX-License-Identifier: Apache-2.0
#include "tests/importers/cases.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <memory>
#include <stdexcept>

namespace lockstep::importers {

namespace {

std::shared_ptr<const Source> read(const std::filesystem::path& path) {
  std::ifstream stream(path, std::ios::binary);
  if (!stream) throw std::runtime_error("cannot read " + path.string());
  return std::make_shared<const Source>(Source{path.filename().string(), {std::istreambuf_iterator<char>(stream), {}}});
}

std::vector<std::string> texts(const Json& object, std::string_view key) {
  std::vector<std::string> result;
  if (const Json* list = object.find(key)) {
    for (const Json& item : list->items()) result.push_back(item.text());
  }
  return result;
}

std::int64_t integer(const Json& object, std::string_view key) {
  const Json* value = object.find(key);
  return value != nullptr ? std::stoll(value->text()) : 0;
}

Case read_case(const std::filesystem::path& path) {
  Diagnostics diagnostics;
  const Json json = parse_json(read(path), diagnostics);
  if (!diagnostics.empty()) throw std::runtime_error(render(diagnostics.sorted().front()));
  Case result{path, {}, *json.find("expected")};
  const Json& from = *json.find("import");
  ImportRequest& request = result.request;
  request.format = from.find("format")->text();
  for (const std::string& file : texts(from, "files")) request.files.push_back(read(path.parent_path() / file));
  request.arguments = texts(from, "arguments");
  request.sizes = texts(from, "sizes");
  request.options = texts(from, "options");
  request.variables = texts(from, "variables");
  if (const Json* model = from.find("model")) request.model = model->text();
  request.world = integer(from, "world");
  request.tp = integer(from, "tp");
  request.pp = integer(from, "pp");
  request.cp = integer(from, "cp");
  request.sp = integer(from, "sp");
  request.ep = integer(from, "ep");
  request.micro_batches = integer(from, "micro_batches");
  return result;
}

}  // namespace

void update(const Case& one, const Imported& imported) {
  Diagnostics diagnostics;
  Json json = parse_json(read(one.file), diagnostics);
  Json expected = Json::object();
  for (const std::string_view key : {"layout", "model", "batch", "schedule"})
    expected.set(key, *imported.scenario.find(key));
  for (const Json::Member& member : one.expected.members()) {
    if (expected.find(member.key) == nullptr) expected.set(member.key, member.value);
  }
  json.set("expected", expected);
  std::ofstream(one.file, std::ios::binary) << write_json(json);
}

bool is_readable(const std::string& name) {
  for (const ImportSyntax& syntax : import_syntaxes()) {
    const bool yaml = name.ends_with(".yaml") || name.ends_with(".yml");
    if (!syntax.built && (syntax.name == "YAML" ? yaml : name.ends_with(".toml"))) return false;
  }
  return true;
}

std::vector<Case> all_cases() {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(LOCKSTEP_SOURCE_DIR "/tests/importers/cases")) {
    if (entry.path().extension() == ".json" && entry.path().stem().extension() == ".case")
      files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  std::vector<Case> cases;
  for (const std::filesystem::path& file : files) {
    Case one = read_case(file);
    const auto& sources = one.request.files;
    const bool readable =
        std::all_of(sources.begin(), sources.end(), [](const auto& source) { return is_readable(source->name); });
    if (readable) cases.push_back(std::move(one));
  }
  return cases;
}

}  // namespace lockstep::importers
