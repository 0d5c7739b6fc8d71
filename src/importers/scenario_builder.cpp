// SPDX-License-Identifier: Apache-2.0
#include "src/importers/scenario_builder.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>

#include "lockstep/scenario.h"
#include "src/base/counted.h"
#include "src/importers/origins.h"
#include "src/importers/redact.h"

namespace lockstep::importers {

namespace {

/// The key that a spelling stands for, without the dashes of an argument.
std::string plain(std::string_view spelling) {
  std::string key(spelling.substr(std::min(spelling.find_first_not_of('-'), spelling.size())));
  std::replace(key.begin(), key.end(), '-', '_');
  return key;
}

/// That, without the section that it is in.
std::string without_section(std::string_view spelling) {
  const std::string key = plain(spelling);
  return key.substr(key.rfind('.') + 1);
}

}  // namespace

bool same_word(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](unsigned char x, unsigned char y) { return std::tolower(x) == std::tolower(y); });
}

ScenarioBuilder::ScenarioBuilder(const ImportRequest& request, const std::string& table, Settings settings,
                                 Diagnostics& diagnostics)
    : request_(request), table_(table), settings_(std::move(settings)), diagnostics_(diagnostics) {}

void ScenarioBuilder::meaning(std::string_view key, std::string text) {
  meanings_.insert_or_assign(std::string(key), std::move(text));
}

void ScenarioBuilder::disregard(std::string_view key, std::string text) {
  meaning(key, std::move(text));
  disregarded_.emplace(key);
}

void ScenarioBuilder::mistake(std::string_view key, std::string message) {
  const Setting* setting = settings_.find(key);
  if (setting == nullptr) {
    diagnostics_.add({}, std::move(message));
    return;
  }
  if (!mistaken_.emplace(key).second) return;  // one mistake per key is enough
  const bool has_place = setting->value.place().source != nullptr;
  diagnostics_.add(has_place ? setting->value.place() : setting->place,
                   fmt::format("{}: {}", setting->written, message));
}

void ScenarioBuilder::beyond_presets(std::string_view key, const std::string& message) {
  if (!has_stand_in()) {
    mistake(key, message + "; --model PRESET puts one of lockstep's models in its place");
    return;
  }
  const Setting* setting = settings_.find(key);
  stands_in_for(setting != nullptr ? setting->written : std::string(key));
  disregard(key, "");
  not_judged_.emplace(key);
}

/// What --model stands in for; a mistake where it is nothing.
void ScenarioBuilder::tell_stand_in() {
  if (!has_stand_in() || request_.format != "megatron") return;
  if (stood_in_.empty() && sizes_of_stand_in_.empty()) {
    mistake("",
            "--model: what this configuration says of its model is described; leave --model out, and replace single "
            "sizes with --size KEY=VALUE");
    return;
  }
  std::string sentence = fmt::format("--model {} stands in for the model", request_.model);
  if (sizes_of_stand_in_.empty()) sentence += ", with the sizes that are given here";
  sentence += ": layout and schedule are judged";
  if (!stood_in_.empty()) sentence += fmt::format(", and nothing that is special to {}", fmt::join(stood_in_, ", "));
  if (!sizes_of_stand_in_.empty())
    sentence += fmt::format("; {} {} {}'s own", fmt::join(sizes_of_stand_in_, ", "),
                            sizes_of_stand_in_.size() == 1 ? "is" : "are", request_.model);
  assume(sentence + ".");
}

bool ScenarioBuilder::is_left_out(const std::string& key) const {
  return std::any_of(left_out_.begin(), left_out_.end(),
                     [&](const std::string& one) { return key == one || key.starts_with(one + "."); });
}

void ScenarioBuilder::axis(std::string_view key, std::int64_t size) {
  if (size != 1) layout(key, json_integer(size));
}

void ScenarioBuilder::size(std::string_view key, Json value) { sizes_.set(key, std::move(value)); }

std::string text_of(const ScenarioBuilder::Degrees& degrees) {
  std::string text;
  for (const auto& [name, size] : degrees) text += fmt::format("{}{} {}", text.empty() ? "" : " × ", name, size);
  return text;
}

std::int64_t ScenarioBuilder::degree(std::string_view key, std::int64_t asked) {
  if (asked > 0) return asked;
  const std::int64_t size = integer(key).value_or(1);
  if (size >= 1 && size <= largest_import_size) return size;
  mistake(key, fmt::format("expected a size between 1 and {}, found {}", largest_import_size, size));
  return 1;
}

std::optional<std::int64_t> ScenarioBuilder::model_size(const std::string& size, std::string_view key) {
  for (auto one = request_.sizes.rbegin(); one != request_.sizes.rend(); ++one) {  // of two the later one counts
    if (!one->starts_with(size + "=")) continue;
    const std::optional<Rational> number = Rational::parse(one->substr(size.size() + 1));
    const std::optional<std::int64_t> whole = number ? number->to_int64() : std::nullopt;
    constexpr std::int64_t most = std::int64_t{1} << 40;  // as integer() has it
    return whole && *whole > 0 && *whole <= most ? whole : std::nullopt;
  }
  return integer(key);
}

std::int64_t ScenarioBuilder::world_size(std::string_view key, std::int64_t otherwise) {
  const std::int64_t world = integer(key).value_or(otherwise);
  if (request_.world > 0) {
    if (world > 0 && world != request_.world)
      assume(fmt::format("--world-size: {} in the place of {} that the configuration says.",
                         counted(request_.world, "rank"), world));
    return request_.world;
  }
  if (world >= 0 && world <= largest_import_size) return world;
  mistake(key, fmt::format("expected a number of ranks between 1 and {}, found {}", largest_import_size, world));
  return 0;
}

std::int64_t ScenarioBuilder::product(const Degrees& degrees) {
  std::int64_t product = 1;
  for (const auto& degree : degrees) {
    product *= degree.second;
    if (product <= largest_import_size) continue;
    mistake("", fmt::format("{} are more than {} ranks", text_of(degrees), largest_import_size));
    return 0;
  }
  return product;
}

std::int64_t ScenarioBuilder::data_parallel_size(std::int64_t world, const Degrees& degrees) {
  if (!mistaken_.empty()) return 0;  // said already
  const std::int64_t product = this->product(degrees);
  if (product == 0) return 0;
  if (world <= 0) {
    mistake("", product == 1
                    ? "the number of ranks is not known; give --world-size N"
                    : fmt::format("the number of ranks is not known; give --world-size N, a multiple of {} ({})",
                                  product, text_of(degrees)));
    return 0;
  }
  if (world % product != 0) {
    mistake("",
            fmt::format("{} not divide by {} ({}); give --world-size N, a multiple of {}",
                        counted(world, "rank") + (world == 1 ? " does" : " do"), product, text_of(degrees), product));
    return 0;
  }
  return world / product;
}

void ScenarioBuilder::assumed_model(std::int64_t tp) {
  preset(request_.model.empty() ? "gpt2" : request_.model);
  if (tp > 1) size("make_vocab_size_divisible_by", json_integer(128));
  if (request_.model.empty()) {
    assume(
        "The configuration says nothing about the model: a GPT-2 small stands in for it; give --model PRESET and "
        "--size KEY=VALUE for another.");
  }
}

namespace {

/// What an option of the command line means: a boolean, a number or a text.
Json value_of(const std::string& text) {
  if (text == "true" || text == "false") return Json::boolean(text == "true");
  const std::optional<Rational> number = Rational::parse(text);
  return number ? json_number(*number) : Json::string(text);
}

/// Whether the framework's option holds a text: that of a version may look like a number ("core=0.16").
bool holds_text(const std::string& framework, std::string_view option) {
  const std::string* text = builtin_framework(framework);
  if (text == nullptr) return false;
  Diagnostics diagnostics;
  const Json json = parse_json(std::make_shared<const Source>(Source{framework, *text}), diagnostics);
  const Json* options = json.find("options");
  const Json* found = options != nullptr ? options->find(option) : nullptr;
  const Json* type = found != nullptr ? found->find("type") : nullptr;
  return type != nullptr && type->text() == "string";
}

/// The release that a table was written from; by the value of one of the framework's options, where it says so.
std::string release_of(const KeyTable& table, const Json& options) {
  const Json* release = table.other("release");
  if (release == nullptr || !release->is_object()) return release != nullptr ? release->text() : "";
  const Json* chosen = options.find(release->find("option")->text());
  const Json* named = chosen != nullptr && chosen->is_string() ? release->find(chosen->text()) : nullptr;
  return (named != nullptr ? named : release->find("otherwise"))->text();
}

}  // namespace

void ScenarioBuilder::runs_on(const std::string& table) { runs_on_ = " with " + release_of(KeyTable(table), options_); }

std::string ScenarioBuilder::release() const {
  return (release_.empty() ? release_of(table_, options_) : release_) + runs_on_;
}

void ScenarioBuilder::add_request_sizes() {
  if (!request_.model.empty()) {
    if (builtin_model(request_.model) == nullptr) {
      const std::string near = did_you_mean(request_.model, builtin_models());
      mistake("", fmt::format("--model: there is no model \"{}\"{}", request_.model,
                              near.empty() ? fmt::format("; there are {}", fmt::join(builtin_models(), ", ")) : near));
    }
    preset_ = request_.model;
  }
  for (const std::string& text : request_.sizes) {
    const std::size_t equals = text.find('=');
    if (equals == std::string::npos || equals == 0 || equals + 1 == text.size()) {
      mistake("", fmt::format("--size takes KEY=VALUE, such as layers=12; found \"{}\"", text));
      continue;
    }
    size(text.substr(0, equals), value_of(text.substr(equals + 1)));
  }
}

void ScenarioBuilder::add_request_options() {
  for (const std::string& text : request_.options) {
    const std::size_t equals = text.find('=');
    if (equals == std::string::npos || equals == 0 || equals + 1 == text.size()) {
      mistake("", fmt::format("--option takes NAME=VALUE, such as zero_stage=2; found \"{}\"", text));
      continue;
    }
    const std::string name = text.substr(0, equals), value = text.substr(equals + 1);
    option(name, holds_text(framework_name(), name) ? Json::string(value) : value_of(value));
  }
}

void ScenarioBuilder::check_allowed(const Setting& setting, const ConfigurationKey& row) {
  const bool allowed = setting.value.is_null() || std::any_of(row.only.begin(), row.only.end(), [&](const Json& one) {
                         if (one.same_as(setting.value)) return true;
                         if (one.is_string() && setting.value.is_string())
                           return same_word(one.text(), setting.value.text());
                         // Arguments are text: "1" is 1, and "true" is true.
                         return setting.value.is_string() && (one.is_number() || one.is_boolean()) &&
                                setting.value.text() == (one.is_number()    ? one.text()
                                                         : one.as_boolean() ? "true"
                                                                            : "false");
                       });
  if (allowed) return;
  const bool wants_boolean = !row.only.empty() && std::all_of(row.only.begin(), row.only.end(),
                                                              [](const Json& one) { return one.is_boolean(); });
  if (wants_boolean && !boolean_of(setting.value)) {
    mistake(setting.key, "expected true or false, found " + kind_of(setting.value));
  } else if (row.of_model) {
    beyond_presets(setting.key, row.because);
  } else {
    mistake(setting.key, row.because);
  }
}

void ScenarioBuilder::pass_on(const Setting& setting, const ConfigurationKey& row) {
  Json result;
  if (row.type == "integer") {
    if (const auto found = integer(setting.key)) result = json_integer(*found);
  } else if (row.type == "number") {
    if (const auto found = number(setting.key)) result = json_number(*found);
  } else if (row.type == "boolean") {
    if (setting.value.is_null() && setting.unresolved.empty()) return;
    const bool found = boolean(setting.key, false);
    if (mistaken_.contains(setting.key)) return;
    const auto other = row.becomes.find(found ? "true" : "false");
    result = other != row.becomes.end() ? other->second : Json::boolean(found);
  } else if (row.type == "word") {
    const std::string found = word(setting.key);
    if (found.empty()) return;
    const auto other = row.becomes.find(found);
    result = other != row.becomes.end() ? other->second : Json::string(found);
  } else {
    throw InternalError("a value of type " + row.type + " cannot go on as it is: " + setting.key);
  }
  if (result.is_null()) return;
  result = result.at({});
  if (row.goes_to == "option") {
    option(row.target, result);
  } else if (row.goes_to == "size") {
    size(row.target, result);
  } else {
    layout(row.target, result);
  }
}

std::string ScenarioBuilder::meaning_of(const Setting& setting, const ConfigurationKey& row) const {
  const auto own = meanings_.find(setting.key);
  if (own != meanings_.end()) return own->second;
  if (row.goes_to == "option") return "option " + row.target;
  if (row.goes_to == "size") return "model." + row.target;
  if (row.goes_to == "layout") return "layout." + row.target;
  return row.meaning;
}

bool ScenarioBuilder::shapes_layout(const std::string& spelling) const {
  const ConfigurationKey* row = table_.row(spelling);
  if (row == nullptr) row = table_.row(plain(spelling));
  const std::string pointer = row == nullptr ? "" : row->pointer();
  return pointer.starts_with("/layout/") || pointer.starts_with("/batch/");
}

std::map<std::string, std::string> ScenarioBuilder::spellings_of_layout() const {
  std::map<std::string, std::string> spellings;
  for (const std::string& spelling : spellings_.empty() ? table_.known() : spellings_) {
    if (shapes_layout(spelling)) spellings.emplace(without_section(spelling), spelling);
  }
  return spellings;
}

std::string ScenarioBuilder::replaced_by(const std::string& pointer) const {
  for (const auto& [other, option, given] :
       {std::tuple("/layout/tp", "--tp", request_.tp), std::tuple("/layout/pp", "--pp", request_.pp),
        std::tuple("/layout/cp", "--cp", request_.cp), std::tuple("/layout/sp", "--sp", request_.sp),
        std::tuple("/layout/ep", "--ep", request_.ep),
        std::tuple("/batch/micro_batches", "--micro-batches", request_.micro_batches)}) {
    if (given > 0 && pointer == other) return option;
  }
  for (const auto& [folder, option, values] : {std::tuple("/model/", "--size ", &request_.sizes),
                                               std::tuple("/schedule/options/", "--option ", &request_.options)}) {
    for (const std::string& one : *values) {
      const std::string name = one.substr(0, one.find('='));
      if (pointer == folder + name) return option + name;
    }
  }
  return "";
}

std::string ScenarioBuilder::listed_with(const Setting& setting, const ConfigurationKey& row) const {
  if (setting.is_auto) return "as if it were not given: \"auto\" is filled in by what starts DeepSpeed";
  const std::string meaning = meaning_of(setting, row);
  std::vector<std::string> options;
  for (const std::string& pointer : scenario_pointers(meaning)) {
    options.push_back(replaced_by(pointer));
    if (options.back().empty()) return meaning;
  }
  if (options.empty()) return meaning;
  std::sort(options.begin(), options.end());
  options.erase(std::unique(options.begin(), options.end()), options.end());
  return fmt::format("nothing: {} {} given", fmt::join(options, " and "), options.size() == 1 ? "is" : "are");
}

void ScenarioBuilder::account(Imported& imported) {
  const std::map<std::string, std::string> of_layout = spellings_of_layout();
  for (const Setting& setting : settings_.all()) {
    const ConfigurationKey* row = table_.row(setting.key);
    if (is_left_out(setting.key)) {
      imported.unknown.push_back(shown_key(setting.written));
      continue;
    }
    if (row == nullptr && setting.value.is_object()) continue;  // an empty section
    if (row != nullptr) {
      if (not_judged_.contains(setting.key)) {
        imported.not_judged.push_back(setting.written);
        if (meaning_of(setting, *row).empty()) continue;  // one of its sizes may be used all the same
      }
      if (row->goes_to.empty() && row->meaning.empty()) {
        imported.ignored.push_back({setting.written, "", "this value changes nothing"});
      } else {
        const Json& value = setting.value;
        const bool number = (value.is_number() || value.is_string()) && Rational::parse(value.text()).has_value();
        const bool boolean = value.is_boolean() && !setting.written.starts_with("--");
        imported.used.push_back({setting.written,
                                 number    ? value.text()
                                 : boolean ? value.describe()
                                           : "",
                                 listed_with(setting, *row)});
      }
      continue;
    }
    const std::string why = table_.ignored(setting.key, setting.origin);
    if (!why.empty()) {
      imported.ignored.push_back({shown_key(setting.written), "", why});
    } else if (const auto other = of_layout.find(without_section(setting.written)); other != of_layout.end()) {
      diagnostics_.add(setting.place,
                       fmt::format("lockstep does not know the key \"{}\"; did you mean \"{}\"? That shapes the layout "
                                   "or the batch, so that this one is not left out: write it so, or take it away",
                                   shown_key(setting.written), other->second));
    } else if (request_.ignore_unknown) {
      imported.unknown.push_back(shown_key(setting.written));
    } else {
      const std::vector<std::string> known = spellings_.empty() ? table_.known() : spellings_;
      const bool may_go = !shapes_layout(nearest_word(setting.written, known));
      diagnostics_.add(setting.place, fmt::format("lockstep does not know the key \"{}\", and it may matter{}{}",
                                                  shown_key(setting.written), did_you_mean(setting.written, known),
                                                  may_go ? "; --ignore-unknown leaves it out" : ""));
    }
  }
}

void ScenarioBuilder::add_origins(Imported& imported) const {
  const auto add = [&](const std::string& pointer, const std::string& key, const std::string& number = "",
                       const Place& place = {}) {
    imported.origins.push_back({pointer, key, number, place});
  };
  for (const Setting& setting : settings_.all()) {
    const ConfigurationKey* row = table_.row(setting.key);
    if (row == nullptr || setting.value.is_null()) continue;
    const bool has_place = setting.value.place().source != nullptr;
    const bool number =
        (setting.value.is_number() || setting.value.is_string()) && Rational::parse(setting.value.text()).has_value();
    for (const std::string& pointer : scenario_pointers(meaning_of(setting, *row))) {
      add(pointer, setting.written, number ? setting.value.text() : "",
          has_place ? setting.value.place() : setting.place);
    }
  }
  for (const auto& [pointer, option, value] :
       {std::tuple("/layout/tp", "--tp", request_.tp), std::tuple("/layout/pp", "--pp", request_.pp),
        std::tuple("/layout/cp", "--cp", request_.cp), std::tuple("/layout/sp", "--sp", request_.sp),
        std::tuple("/layout/ep", "--ep", request_.ep),
        std::tuple("/batch/micro_batches", "--micro-batches", request_.micro_batches),
        std::tuple("/layout/dp", "--world-size", request_.world)}) {
    if (value > 0) add(pointer, option, std::to_string(value));
  }
  if (!request_.model.empty()) add("/model/preset", "--model");
  for (const std::string& text : request_.sizes) {
    const std::string name = text.substr(0, text.find('='));
    std::erase_if(imported.origins, [&](const ImportedOrigin& origin) { return origin.pointer == "/model/" + name; });
    add("/model/" + name, "--size " + name);
  }
  for (const std::string& text : request_.options) {
    const std::string name = text.substr(0, text.find('='));
    const std::string pointer = "/schedule/options/" + name;
    std::erase_if(imported.origins, [&](const ImportedOrigin& origin) { return origin.pointer == pointer; });
    add(pointer, "--option " + name);
  }
}

Imported ScenarioBuilder::finish(const std::string& title, const std::string& name) {
  for (const Setting& setting : settings_.all()) {
    const ConfigurationKey* row = table_.row(setting.key);
    if (row == nullptr || disregarded_.contains(setting.key) || is_left_out(setting.key)) continue;
    if (!row->goes_to.empty()) pass_on(setting, *row);
    if (!setting.unresolved.empty()) {
      mistake(setting.key, setting.unresolved);
    } else if (row->refuses) {
      check_allowed(setting, *row);
    }
  }
  tell_stand_in();
  add_request_sizes();
  add_request_options();
  Imported imported;
  account(imported);
  if (request_.micro_batches > 0) micro_batches_ = request_.micro_batches;
  imported.assumed = std::move(assumed_);
  imported.release = release();

  Json model = Json::object();
  model.set("preset", Json::string(preset_));
  for (const Json::Member& member : sizes_.members()) model.set(member.key, member.value);
  Json batch = Json::object();
  batch.set("micro_batches", json_integer(micro_batches_));
  Json schedule = Json::object();
  schedule.set("framework", Json::string(framework_name()));
  if (!options_.members().empty()) schedule.set("options", options_);
  if (!edits_.empty()) schedule.set("edits", Json::array(std::move(edits_)));
  Json& scenario = imported.scenario = Json::object();
  scenario.set("lockstep", json_integer(1));
  scenario.set("name", Json::string(name));
  const bool is_whole = stood_in_.empty() && sizes_of_stand_in_.empty();
  const std::string stand_in = is_whole ? "" : fmt::format(", {} in the place of its model", request_.model);
  scenario.set("title", Json::string(title + stand_in + ", judged as " + imported.release));
  scenario.set("layout", layout_);
  scenario.set("model", model);
  scenario.set("batch", batch);
  scenario.set("schedule", schedule);
  Json expect = Json::object();
  expect.set("verdict", Json::string("match"));
  scenario.set("expect", expect);
  add_origins(imported);
  return imported;
}

}  // namespace lockstep::importers
