// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "src/base/counted.h"
#include "src/scenario/edits.h"
#include "src/scenario/other_words.h"

namespace lockstep::scenario {

namespace {

/// Whether an optimizer step has an iteration of this index, which is then written in one way: -0 is 0.
bool check_iteration(EditTarget& target, Reading& reading) {
  if (target.iteration == "first" || target.iteration == "last") return true;
  const std::optional<std::int64_t> index = whole_number(Json::number(target.iteration));
  if (!index) {
    reading.diagnostics.add(
        target.place,
        fmt::format("expected an index, \"first\" or \"last\" in the brackets, found \"{}\"", target.iteration));
    return false;
  }
  const std::vector<int>& counts = reading.batch.micro_batch_counts;
  const int most = *std::max_element(counts.begin(), counts.end());
  if (reading.any_micro_batches || (*index < most && *index >= -most)) {  // of "any" number some have it
    target.iteration = std::to_string(*index);
    return true;
  }
  reading.diagnostics.add(target.place,
                          fmt::format("iteration {} does not exist: an optimizer step has {}, counted from 0", *index,
                                      counted(most, "micro-batch")));
  return false;
}

/// The action of an edit ("drop", "set", …), or "" where a mistake was added.
std::string action_of(const Json& edit, Reading& reading) {
  if (!edit.is_object()) {
    reading.diagnostics.add(edit.place(),
                            fmt::format("expected an edit such as {{ \"drop\": STEP }}, found {}", edit.describe()));
    return "";
  }
  const std::vector<std::string> actions = variants_of(object_row(Object::edit));
  std::string found;
  for (const Json::Member& member : edit.members()) {
    if (std::find(actions.begin(), actions.end(), member.key) == actions.end()) continue;
    if (!found.empty()) {
      reading.diagnostics.add(
          key_place(member),
          fmt::format("an edit does one thing: \"{}\" cannot stand beside \"{}\"", member.key, found));
      return "";
    }
    found = member.key;
  }
  if (!found.empty()) return found;
  std::string near;
  for (const Json::Member& member : edit.members()) {
    if (near.empty()) near = did_you_mean_here(member.key, actions);
  }
  reading.diagnostics.add(edit.place(),
                          fmt::format("expected an edit with one of {}{}", quoted_alternatives(actions), near));
  return "";
}

/// Nothing where a mistake was added.
std::optional<EditTarget> read_target(const Json& value, Reading& reading) {
  EditTarget target{value.text(), "", value.place()};
  const std::size_t open = target.name.find('[');
  if (open == std::string::npos) return target;
  if (target.name.back() != ']') {
    reading.diagnostics.add(value.place(), fmt::format("expected STEP or STEP[INDEX], found \"{}\"", target.name));
    return std::nullopt;
  }
  target.iteration = target.name.substr(open + 1, target.name.size() - open - 2);
  target.name.resize(open);
  if (!check_iteration(target, reading)) return std::nullopt;
  return target;
}

class EditReader {
 public:
  EditReader(const Json& json, Reading& reading) : json_(json), reading_(reading) { edit_.place = json.place(); }

  std::optional<WrittenEdit> read() {
    const std::string action = action_of(json_, reading_);
    if (action.empty()) return std::nullopt;
    const std::vector<std::string> actions = variants_of(object_row(Object::edit));
    edit_.action = static_cast<Edit::Action>(std::find(actions.begin(), actions.end(), action) - actions.begin());
    const bool good = action == "set" ? set() : action == "parameter" ? parameter() : step(action);
    return good ? std::optional(WrittenEdit{std::move(edit_), std::move(inserted_), std::move(values_)}) : std::nullopt;
  }

 private:
  bool step(const std::string& action) {
    const Fields fields(json_, Object::edit, action, fmt::format("in the edit \"{}\"", action), reading_.diagnostics);
    const Json* value = fields.find(action);
    if (value == nullptr) return false;
    const bool goes_somewhere = edit_.action == Edit::Action::move || edit_.action == Edit::Action::insert;
    const Json* beside = goes_somewhere ? destination(fields, action) : nullptr;
    bool good = !goes_somewhere || beside != nullptr;
    if (edit_.action == Edit::Action::insert) {
      inserted_ = *value;
      read_values(inserted_.members(), reading_, edit_);
    } else {
      good = target(*value, edit_.step) && good;
    }
    if (beside != nullptr) good = target(*beside, edit_.beside) && good;
    if (!good || edit_.action != Edit::Action::move) return good;
    return is_whole("\"move\" takes a whole step, not one iteration of it");
  }

  bool target(const Json& value, EditTarget& into) {
    std::optional<EditTarget> read = read_target(value, reading_);
    if (read) into = std::move(*read);
    return read.has_value();
  }

  bool is_whole(const char* message) {
    if (edit_.step.iteration.empty()) return true;
    reading_.diagnostics.add(edit_.step.place, message);
    return false;
  }

  /// "before" or "after": exactly one must be there.
  const Json* destination(const Fields& fields, std::string_view action) {
    const Json* before = fields.find("before");
    const Json* behind = fields.find("after");
    if ((before != nullptr) == (behind != nullptr)) {
      if (before != nullptr || (json_.find("before") == nullptr && json_.find("after") == nullptr)) {
        reading_.diagnostics.add(json_.place(), fmt::format("the edit \"{}\" needs either \"before\" or \"after\"{}",
                                                            action, before != nullptr ? ", not both" : ""));
      }
      return nullptr;
    }
    edit_.after = behind != nullptr;
    return edit_.after ? behind : before;
  }

  std::vector<Json::Member> values_beside(std::string_view action) const {
    std::vector<Json::Member> values = json_.members();
    std::erase_if(values, [&](const Json::Member& member) { return member.key == action; });
    return values;
  }

  bool set() {
    const Json& value = *json_.find("set");
    values_ = values_beside("set");
    read_values(values_, reading_, edit_);
    return check_type(value, Type::name, "", reading_.diagnostics) && target(value, edit_.step) &&
           is_whole("\"set\" changes a whole step, not one iteration of it");
  }

  bool parameter() {
    const std::size_t before = reading_.diagnostics.size();
    edit_.parameters = *json_.find("parameter");
    edit_.parameter_values = values_beside("parameter");
    const ObjectRow& row = object_row(Object::parameter);
    std::vector<std::string> known;
    known.reserve(row.keys.size());
    for (const ObjectKey& key : row.keys) known.emplace_back(key.name);
    for (const Json::Member& member : edit_.parameter_values) {
      if (find_key(row, member.key) != nullptr) continue;
      reading_.diagnostics.add(key_place(member), fmt::format("unknown key \"{}\" in the edit \"parameter\"{}",
                                                              member.key, did_you_mean(member.key, known)));
    }
    if (edit_.parameter_values.empty())
      reading_.diagnostics.add(json_.place(), "the edit \"parameter\" names no key to change");
    if (check_type(edit_.parameters, Type::selectors, "", reading_.diagnostics))
      read_selectors(edit_.parameters, reading_);
    return reading_.diagnostics.size() == before;
  }

  const Json& json_;
  Reading& reading_;
  Edit edit_;
  Json inserted_;
  std::vector<Json::Member> values_;
};

}  // namespace

std::vector<WrittenEdit> read_edits(const Json& list, Reading& reading) {
  std::vector<WrittenEdit> edits;
  for (const Json& json : list.items()) {
    if (std::optional<WrittenEdit> edit = EditReader(json, reading).read()) edits.push_back(std::move(*edit));
  }
  return edits;
}

std::string iteration_condition(const EditTarget& target, bool equal) {
  std::string iteration = target.iteration;
  if (iteration == "first") iteration = "0";
  if (iteration == "-1") iteration = "last";
  if (iteration[0] == '-') iteration = "micro_batches - " + iteration.substr(1);
  return fmt::format("micro_batch {} {}", equal ? "==" : "!=", iteration);
}

}  // namespace lockstep::scenario
