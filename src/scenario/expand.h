// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "lockstep/json.h"
#include "src/scenario/edits.h"
#include "src/scenario/named_file.h"
#include "src/scenario/reading.h"
#include "src/scenario/selector_matches.h"

namespace lockstep::scenario {

class Template;

/// An option of a framework or a size of a model, with the value that the scenario chose.
struct OptionValue {
  Json value;            ///< a scalar or null
  std::string type;      ///< "boolean", "integer", "number", "string", or "" for any scalar
  Json allowed;          ///< a list, or null where everything of the type is allowed
  bool written = false;  ///< the scenario gives it
};
using OptionValues = std::vector<std::pair<std::string, OptionValue>>;

/// Sets the value of the choice `member.key`; a mistake is added where there is none of that name
/// (`what`: "option of framework "x"") or the value does not fit.
void set_option(OptionValues& options, const Json::Member& member, const std::string& what, Reading& reading);
/// Adds a mistake where the value that a file gives a choice as its default is not of its type.
void check_default(const std::string& name, const OptionValue& option, Reading& reading);
/// Where a rule that mentions `names` is reported: at the first choice among them that the
/// scenario wrote, else at `fallback`.
Place place_of_rule(const OptionValues& options, const std::set<std::string>& names, const Place& fallback);

/// Plain parameters of a scenario's "model": its own list, or the preset expanded. Null where that
/// could not be done.
Json expand_model(const Json& model, Reading& reading);

/// A framework file on its way to plain steps.
class Framework {
 public:
  /// Reads the file and its options. Nothing where the file cannot be used.
  static std::unique_ptr<Framework> load(const Json& reference, const Json* options, Reading& reading);

  /// The scenario's layout or batch with the framework's defaults for what it leaves out.
  Json with_layout_defaults(const Json& layout, Reading& reading) const;
  Json with_batch_defaults(const Json& batch, Reading& reading) const;
  /// Plain steps. Needs layout and batch.
  Json steps(Reading& reading);
  /// Notes for the steps that edits name and that are not there on which sizes that hangs, as rules that refuse.
  void note_absence(const std::vector<WrittenEdit>& edits, Reading& reading) const;
  /// `value`, something that the scenario wrote, with the options in its expressions replaced.
  Json with_options(const Json& value, Reading& reading) const;
  /// Without what selects nothing in the model of `matches` on any rank.
  Json without_unmatched(const Json& steps, SelectorMatches& matches, Reading& reading);
  /// Name of the buffer that the optimizer reads, if the file names one.
  const Json* result() const { return file_.document.find("result"); }
  /// Steps of the file that are not in the schedule, with the reason: for messages about edits.
  const std::map<std::string, std::string>& absent() const { return absent_; }

 private:
  Framework(NamedFile file, Place place) : file_(std::move(file)), place_(std::move(place)) {}
  void read_options(const Json* options, Reading& reading);
  /// Where their number is "any": sets `reading.batch` to one.
  void choose_micro_batches(Reading& reading) const;
  void define_and_apply_rules(Template& values, const Diagnostics& diagnostics) const;

  NamedFile file_;
  Place place_;  ///< of "framework" in the scenario
  std::string name_;
  OptionValues options_;
  std::map<std::string, std::string> absent_;
};

/// The steps of a framework file without conditions that layout, batch and options decide, and
/// without options. Steps that this leaves out are noted in `absent`.
Json expand_framework_steps(const Json& steps, Template& values, std::map<std::string, std::string>& absent,
                            Reading& reading);

/// Without the waits for steps in `absent`, which would do nothing.
Json without_idle_waits(const Json& steps, const std::map<std::string, std::string>& absent);

/// The environment of files' expressions: axis sizes and, where all optimizer steps have as many,
/// micro-batches.
Environment file_environment(const Reading& reading);

}  // namespace lockstep::scenario
