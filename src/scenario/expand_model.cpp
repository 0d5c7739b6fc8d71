// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <utility>

#include "src/base/budget.h"
#include "src/scenario/expand.h"
#include "src/scenario/known_models.h"
#include "src/scenario/model_sizes.h"
#include "src/scenario/template.h"

namespace lockstep::scenario {

namespace {

/// Passes through loops, with those that yield no parameter.
constexpr std::int64_t pass_limit = 2'000'000;

// A default such as 0.0 says that its values need not be whole.
std::string type_of_default(const Json& value) {
  if (value.is_boolean()) return "boolean";
  if (value.is_number())
    return whole_number(value) && value.text().find('.') == std::string::npos ? "integer" : "number";
  return value.is_string() ? "string" : "";
}

/// What a model file and its bases say together.
struct ModelTemplate {
  std::string family;  ///< name of the file without a base
  OptionValues sizes;
  std::vector<Json::Member> let;
  std::vector<Json> rules;
  std::vector<Json> parameters;
};

void add_size(ModelTemplate& model, const Json::Member& member, const std::string& name, Reading& reading) {
  if (member.value.is_object()) {
    if (!check_defined_name(member, reading.diagnostics)) return;
    const Fields fields(member.value, Object::size, "", fmt::format("in size \"{}\"", member.key), reading.diagnostics);
    const Json* value = fields.find("default");
    if (value == nullptr) return;
    OptionValue size{*value, type_of_default(*value),
                     fields.find("allowed") != nullptr ? *fields.find("allowed") : Json(), false};
    const auto found =
        std::find_if(model.sizes.begin(), model.sizes.end(), [&](const auto& old) { return old.first == member.key; });
    if (found != model.sizes.end()) {
      found->second = size;
    } else {
      model.sizes.emplace_back(member.key, size);
    }
    return;
  }
  set_option(model.sizes, member, fmt::format("size of the base of model \"{}\"", name), reading);
  for (auto& size : model.sizes) {
    if (size.first == member.key) size.second.written = false;
  }
}

/// Adds a file to what its bases said. False where it cannot be used.
bool add_file(ModelTemplate& model, const Json& reference, const std::filesystem::path& folder, int depth,
              Reading& reading) {
  if (depth > 8) {
    reading.diagnostics.add(reference.place(), "more than 8 model files stand on each other's \"base\"");
    return false;
  }
  const std::optional<NamedFile> file =
      load_named_file(reference, FileKind::model, folder, reading.folder, reading.diagnostics);
  if (!file) return false;
  const std::size_t before = reading.diagnostics.size();
  const Fields fields(file->document, Object::model_file, "", "in the model file", reading.diagnostics);
  if (fields.find("base") != nullptr && !add_file(model, *fields.find("base"), file->folder, depth + 1, reading))
    return false;
  if (fields.find("base") == nullptr) model.family = fields.text("name");
  if (const Json* sizes = fields.find("sizes")) {
    for (const Json::Member& member : sizes->members()) add_size(model, member, fields.text("name"), reading);
  }
  if (const Json* let = fields.find("let")) {
    for (const Json::Member& member : let->members()) {
      const auto old =
          std::find_if(model.let.begin(), model.let.end(), [&](const auto& known) { return known.key == member.key; });
      if (old != model.let.end()) {
        *old = member;
      } else {
        model.let.push_back(member);
      }
    }
  }
  if (const Json* rules = fields.find("rules"))
    model.rules.insert(model.rules.end(), rules->items().begin(), rules->items().end());
  if (const Json* parameters = fields.find("parameters")) {
    model.parameters.insert(model.parameters.end(), parameters->items().begin(), parameters->items().end());
  }
  return reading.diagnostics.size() == before;
}

/// Expands the parameters of a model file, loop by loop.
class ParameterExpander {
 public:
  ParameterExpander(Template& values, Place preset, Reading& reading)
      : values_(values), preset_(std::move(preset)), reading_(reading) {}

  void expand(const std::vector<Json>& items) {
    for (const Json& item : items) {
      if (stopped()) return;
      if (item.find("for") != nullptr) {
        expand_loop(item);
      } else if (item.find("if") != nullptr) {
        if (const std::optional<Json> resolved = values_.resolve(item)) expand({*resolved});
      } else {
        expand_parameter(item);
      }
    }
  }

  /// The loop over parameters that it went through last.
  const Place& loop() const { return loop_; }

  std::vector<Json> list;

 private:
  bool stopped() {
    if (list.size() <= parameter_limit && passes_ <= pass_limit) return reading_.diagnostics.size() > 20;
    if (!limit_reported_) {
      reading_.diagnostics.add(preset_, list.size() > parameter_limit
                                            ? fmt::format("the model has more than {} parameters", parameter_limit)
                                            : fmt::format("the loops of the model run more than {} times", pass_limit));
    }
    limit_reported_ = true;
    return true;
  }

  void expand_loop(const Json& loop) {
    loop_ = loop.place();
    const Fields fields(loop, Object::parameter_loop, "", "in a loop over parameters", reading_.diagnostics);
    if (fields.find("for") == nullptr || fields.find("parameters") == nullptr) return;
    iterate(fields, fields.find("for")->members(), 0);
  }

  /// Nests the loop variables from `depth` on.
  void iterate(const Fields& fields, const std::vector<Json::Member>& variables, std::size_t depth) {
    if (depth == variables.size()) {
      if (holds(fields.find("when"))) iteration(fields);
      return;
    }
    const Json::Member& variable = variables[depth];
    if (!check_defined_name(variable, reading_.diagnostics)) return;
    if (values_.is_defined(variable.key)) {
      reading_.diagnostics.add(key_place(variable),
                               fmt::format("loop variable \"{}\" has a value already", variable.key));
      return;
    }
    const std::optional<Json> written = values_.resolve(variable.value);
    const std::int64_t count = written ? values_.whole(*written).value_or(0) : 0;
    for (std::int64_t i = 0; i < count && !stopped(); ++i, ++passes_) {
      values_.define(variable.key, i);
      iterate(fields, variables, depth + 1);
    }
    values_.undefine(variable.key);
  }

  void iteration(const Fields& fields) {
    const Json* let = fields.find("let");
    const std::vector<Json::Member> names = let != nullptr ? let->members() : std::vector<Json::Member>();
    for (const Json::Member& member : names) {
      if (!values_.is_defined(member.key)) continue;
      reading_.diagnostics.add(key_place(member), fmt::format("\"{}\" has a value already", member.key));
      return;
    }
    if (let != nullptr) values_.define_all(*let);
    const std::size_t outer = common_.size();
    if (const Json* common = fields.find("common"))
      common_.insert(common_.end(), common->members().begin(), common->members().end());
    expand(fields.find("parameters")->items());
    common_.erase(common_.begin() + static_cast<std::ptrdiff_t>(outer), common_.end());
    for (const Json::Member& member : names) values_.undefine(member.key);
  }

  /// The keys of a parameter and the common ones of the loops around it, the innermost first.
  std::vector<Json::Member> with_common(const Json& item) const {
    std::vector<Json::Member> whole = item.members();
    for (auto common = common_.rbegin(); common != common_.rend(); ++common) {
      const bool known =
          std::any_of(whole.begin(), whole.end(), [&](const Json::Member& own) { return own.key == common->key; });
      if (!known) whole.push_back(*common);
    }
    return whole;
  }

  bool holds(const Json* when) { return when == nullptr || values_.condition(*when).value_or(false); }

  void expand_parameter(const Json& item) {
    if (!holds(item.find("when"))) return;
    std::vector<Json::Member> members;
    for (const Json::Member& member : with_common(item)) {
      if (member.key == "when") continue;
      const std::optional<Json> value = values_.resolve(member.value);
      if (!value) continue;
      Json plain = expand_member(member.key, *value);
      if (!is_default(member.key, plain)) members.push_back({member.key, member.key_place, std::move(plain)});
    }
    list.push_back(Json::object(std::move(members), item.place()));
  }

  static bool is_default(const std::string& key, const Json& value) {
    if (key == "stage" || key == "chunk") return whole_number(value) == 0;
    if (key == "frozen") return value.is_boolean() && !value.as_boolean();
    if (key == "dtype") return value.is_string() && value.text() == "float32";
    if (key == "uses") return value.is_array() && value.items().size() == 1 && value.items()[0].text() == "main";
    if (key == "partial" || key == "dispatch" || key == "tags") return value.is_array() && value.items().empty();
    return (key == "shard" || key == "only") && value.is_object() && value.members().empty();
  }

  Json expand_member(const std::string& key, const Json& value) {
    if (key == "shape" || key == "micro_batches") return map(value, [&](const Json& item) { return number(item); });
    if (key == "tags" || key == "uses") return map(value, [&](const Json& item) { return text(item); });
    if (key == "stage") return value.is_string() && value.text() == "all" ? value : number(value);
    if (key == "chunk") return number(value);
    if (key == "frozen" && value.is_string())
      return Json::boolean(values_.condition(value).value_or(false), value.place());
    if (key == "shard") return shard(value);
    return value.is_string() ? values_.replace(value) : value;
  }

  template <class Function>
  static Json map(const Json& array, Function function) {
    if (!array.is_array()) return array;
    std::vector<Json> items;
    for (const Json& item : array.items()) items.push_back(function(item));
    return Json::array(std::move(items), array.place());
  }

  Json number(const Json& value) {
    if (!value.is_string()) return value;
    return Json::number(std::to_string(values_.whole(value).value_or(1)), value.place());
  }

  Json text(const Json& value) { return value.is_string() ? values_.interpolate(value) : value; }

  Json shard(const Json& value) {
    Json plain = value;
    for (const Json::Member& member : value.members()) {
      Json dim = number(member.value);
      if (dim.is_object() && dim.find("dim") != nullptr) dim.set("dim", number(*dim.find("dim")));
      set_member(plain, {member.key, member.key_place, dim});
    }
    return plain;
  }

  Template& values_;
  Place preset_, loop_;
  Reading& reading_;
  bool limit_reported_ = false;
  std::int64_t passes_ = 0;
  std::vector<Json::Member> common_;  ///< of the loops around, the outermost first
};

/// The edits of the model's communication. Sites are known to the engine that runs them.
std::vector<ModelEdit> read_model_edits(const Json& edits, Reading& reading) {
  std::vector<ModelEdit> result;
  static constexpr std::pair<std::string_view, ModelEdit::Action> actions[] = {
      {"drop", ModelEdit::Action::drop}, {"duplicate", ModelEdit::Action::duplicate}, {"set", ModelEdit::Action::over}};
  for (const Json& item : edits.items()) {
    const auto written = std::find_if(std::begin(actions), std::end(actions),
                                      [&](const auto& action) { return item.find(action.first) != nullptr; });
    if (written == std::end(actions)) {
      reading.diagnostics.add(
          item.place(),
          fmt::format("expected an edit of the model with one of {}, such as {{ \"drop\": \"mlp.copy_to_tp\" }}",
                      quoted_alternatives(variants_of(object_row(Object::model_edit)))));
      continue;
    }
    const Fields fields(item, Object::model_edit, written->first,
                        fmt::format("in the edit \"{}\" of the model", written->first), reading.diagnostics);
    const Json* site = fields.find(written->first);
    if (site == nullptr) continue;
    ModelEdit edit{written->second, site->text(), Axis::tp, site->place()};
    if (const Json* over = fields.find("over")) {
      const std::optional<Axis> axis = axis_named(over->text());
      if (!axis) continue;  // reported by its type
      edit.axis = *axis;
    }
    result.push_back(std::move(edit));
  }
  return result;
}

/// What a list of parameters is the model of: the name of a family and its sizes. Those of a built-in one are checked;
/// of another nothing is known here.
void read_architecture(const Json& architecture, const Json* edits, Reading& reading) {
  Diagnostics& diagnostics = reading.diagnostics;
  const std::size_t before = diagnostics.size();
  const Json* family = architecture.find("family");
  if (family == nullptr || !family->is_string()) {
    diagnostics.add(family != nullptr ? family->place() : architecture.place(),
                    "expected a \"family\", the name of a model such as \"gpt\", in \"architecture\"");
    return;
  }
  ModelTemplate model;
  const bool known = builtin_model(family->text()) != nullptr;
  if (known && !add_file(model, *family, reading.folder, 0, reading)) return;
  for (const Json::Member& member : architecture.members()) {
    if (member.key == "family") continue;
    if (known)
      set_option(model.sizes, member, fmt::format("size of model \"{}\"", family->text()), reading);
    else
      model.sizes.emplace_back(member.key, OptionValue{member.value, "", Json(), true});
  }
  if (diagnostics.size() != before) return;
  reading.preset = Preset{known ? model.family : family->text(), {}, {}, architecture.place()};
  for (const auto& [name, size] : model.sizes) reading.preset->sizes.emplace(name, size.value);
  if (edits != nullptr) reading.preset->edits = read_model_edits(*edits, reading);
}

/// The rules that refuse, as conditions on sizes.
void note_refusing(const ModelTemplate& model, const std::function<Place(const std::set<std::string>&)>& place_of,
                   Reading& reading) {
  Diagnostics ignored;
  Template values(file_environment(reading), ignored);
  values.keep_sizes();
  for (const auto& [name, size] : model.sizes) values.define(name, size.value);
  values.define_all(Json::object(model.let));
  values.apply_rules(Json::array(model.rules), place_of);
  reading.refusing.insert(values.refusing().begin(), values.refusing().end());
}

Json expand_preset(const Json& object, const Json& preset, Reading& reading) {
  Diagnostics& diagnostics = reading.diagnostics;
  ModelTemplate model;
  if (!add_file(model, preset, reading.folder, 0, reading)) return {};
  const std::size_t before = diagnostics.size();
  for (const Json::Member& member : object.members()) {
    if (member.key != "preset" && member.key != "edits")
      set_option(model.sizes, member, fmt::format("size of model \"{}\"", preset.text()), reading);
  }
  // Without sizes or axes nothing can be worked out.
  if (diagnostics.size() != before || !reading.layout_known) return {};
  Template values(file_environment(reading), diagnostics);
  for (const auto& [name, size] : model.sizes) values.define(name, size.value);
  values.define_all(Json::object(model.let));
  if (diagnostics.size() != before) return {};
  const auto place_of = [&](const std::set<std::string>& names) {
    return place_of_rule(model.sizes, names, preset.place());
  };
  values.apply_rules(Json::array(model.rules), place_of);
  if (diagnostics.size() != before) {
    if (reading.keep_sizes) note_refusing(model, place_of, reading);
    return {};
  }
  ParameterExpander expander(values, preset.place(), reading);
  const Budget budget(Budget::search);
  try {
    expander.expand(model.parameters);
  } catch (const OverBudget& over) {
    if (!budget.used_up()) throw;  // a search or a proof is cut off, and the file is not at fault
    // Two million passes through a long condition are hours.
    diagnostics.add(expander.loop(),
                    fmt::format("what the loops of the model evaluate is too much: {}; shorten its conditions, or give "
                                "smaller sizes",
                                over.what()));
  }
  if (diagnostics.size() != before) return {};
  if (reading.keep_sizes)
    note_sizes_of_model(model.sizes, Json::object(model.let), Json::array(model.rules), model.parameters, reading);
  reading.preset = Preset{model.family, {}, {}, preset.place()};
  for (const auto& [name, size] : model.sizes) reading.preset->sizes.emplace(name, size.value);
  if (const Json* edits = object.find("edits")) reading.preset->edits = read_model_edits(*edits, reading);
  return Json::array(std::move(expander.list), object.place());
}

void add_words(const Json& value, std::set<std::string>& words) {
  const auto add = [&](const std::string& text) {
    std::string word;
    for (const char c : text + " ") {
      if (std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_') {
        word += c;
      } else if (!word.empty()) {
        words.insert(std::exchange(word, ""));
      }
    }
  };
  if (value.is_string()) add(value.text());
  for (const Json& item : value.items()) add_words(item, words);
  for (const Json::Member& member : value.members()) {
    if (member.key == "because") continue;  // a sentence for readers
    if (member.key == "micro_batches" && member.value.is_array() && member.value.items().empty()) continue;  // in none
    add(member.key);
    add_words(member.value, words);
  }
}

}  // namespace

std::set<std::string> words_of_model(const Json& model, const Reading& reading) {
  std::set<std::string> words;
  add_words(model, words);
  const Json* preset = model.find("preset");
  if (preset == nullptr) return words;
  Reading quiet;
  quiet.folder = reading.folder;
  ModelTemplate all;
  add_file(all, *preset, reading.folder, 0, quiet);
  for (const auto& [name, size] : all.sizes) add_words(size.value, words);
  add_words(Json::object(all.let), words);
  add_words(Json::array(all.rules), words);
  add_words(Json::array(all.parameters), words);
  return words;
}

Json expand_model(const Json& object, Reading& reading) {
  const Json* preset = object.find("preset");
  const Fields fields = preset != nullptr
                            ? Fields::with_free_keys(object, Object::model, "in \"model\"", reading.diagnostics)
                            : Fields(object, Object::model, "", "in \"model\"", reading.diagnostics);
  const Json* parameters = object.find("parameters");
  const Json* architecture = object.find("architecture");
  if (preset == nullptr && architecture == nullptr && object.find("edits") != nullptr) {
    reading.diagnostics.add(
        object.find("edits")->place(),
        "\"edits\" change what the model of a \"preset\" communicates, and this model has none; edits of "
        "\"parameters\" stand in \"schedule\"");
    return {};
  }
  if (preset != nullptr && architecture != nullptr) {
    reading.diagnostics.add(architecture->place(),
                            "\"architecture\" says what \"parameters\" are the model of; a \"preset\" has its sizes");
    return {};
  }
  if (preset != nullptr && parameters != nullptr) {
    reading.diagnostics.add(parameters->place(), "a model is a \"preset\" or has \"parameters\", not both");
    return {};
  }
  if (preset == nullptr && parameters == nullptr && object.is_object()) {
    reading.diagnostics.add(object.place(), "missing key \"preset\" or \"parameters\" in \"model\"");
    return {};
  }
  if (preset == nullptr) {
    if (fields.find("architecture") != nullptr) read_architecture(*architecture, fields.find("edits"), reading);
    return fields.find("parameters") != nullptr ? *fields.find("parameters") : Json();
  }
  return fields.find("preset") != nullptr ? expand_preset(object, *fields.find("preset"), reading) : Json();
}

}  // namespace lockstep::scenario
