// SPDX-License-Identifier: Apache-2.0
#include "src/live/read_program.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "src/base/at.h"
#include "src/base/counted.h"
#include "src/live/collective_order.h"
#include "src/live/declarations.h"
#include "src/symbolic/program_operations.h"

namespace lockstep::live {

namespace {

using symbolic::ProgramCall;
using symbolic::ProgramContent;
using symbolic::ProgramOp;
using symbolic::ProgramOperation;

/// What a call may carry: sums over all members of a group stay far below what a number can hold.
constexpr std::int64_t most_elements_of_call = std::int64_t{1} << 40;

std::optional<ProgramOp> read_op(const Event& event) {
  const std::string name = event.required_text("op");
  if (const ProgramOperation* row = symbolic::program_operation_named(name)) return row->op;
  if (const Json* found = event.find("op"); found != nullptr && found->is_string())
    event.mistake(*found, fmt::format("unknown operation \"{}\"{}", name,
                                      did_you_mean(name, symbolic::program_operation_names())));
  return std::nullopt;
}

/// A number in a list of a content, from `least` to `most`.
std::optional<std::int64_t> number_in(const Event& event, const Json& json, const char* what, std::int64_t least,
                                      std::int64_t most) {
  const std::optional<std::int64_t> number = whole_number_of(json);
  if (number && *number >= least && *number <= most) return number;
  event.mistake(json,
                fmt::format("{}: expected a whole number from {} to {}, found {}", what, least, most, json.describe()));
  return std::nullopt;
}

std::optional<Rational> fraction_in(const Event& event, const Json& json, const char* what) {
  std::optional<Rational> number;
  if (json.is_string() || json.is_number()) number = Rational::parse(json.text());
  if (!number)
    event.mistake(json, fmt::format("{}: expected a fraction such as \"1/8\", found {}", what, json.describe()));
  return number;
}

std::string text_if_there(const Event& event, std::string_view key) {
  return event.find(key) == nullptr ? "" : event.text_or_null(key).value_or("");
}

}  // namespace

void ProgramReader::event(const Json& json, int line, Diagnostics& mistakes) {
  const Json* name = json.is_object() ? json.find("event") : nullptr;
  if (name == nullptr || !name->is_string()) {
    mistakes.add(json.place(), fmt::format("expected an object with the key \"event\", found {}",
                                           json.is_object() ? "one without it" : json.describe()));
    return;
  }
  const std::string& kind = name->text();
  const Event event(json, kind, mistakes, "event");
  if (ended_) return event.mistake("an event after the \"end\" of the program");
  if (kind == "parameter") return parameter(event);
  if (kind == "contribution") return contribution(event, line);
  if (kind == "collective") return collective(event, line);
  if (kind == "result") return result(event, line);
  if (kind == "square") return square(event);
  if (kind == "norm") return norm(event, line);
  if (kind == "step") return step(event);
  if (kind == "gap") return gap(event, line);
  if (kind == "end") end_event(event);
}

void ProgramReader::parameter(const Event& event) {
  const std::int64_t id = event.whole("id", 0, INT64_MAX / 2);
  const std::optional<DeclaredParameter> declared = read_declared(event);
  if (!declared) return;
  const std::optional<int> number = tables_.parameter(event, *declared);
  if (!number) return;
  if (!numbers_.insert(*number).second)
    return event.mistake(fmt::format("a parameter \"{}\" is declared twice", declared->name));
  if (!number_of_id_.emplace(id, *number).second)
    return event.mistake(fmt::format("parameter {} is declared twice", id));
  declared_.emplace(id, *declared);
}

std::vector<int> ProgramReader::declared(const Event& event, std::string_view key) const {
  std::vector<int> numbers;
  for (const std::int64_t id : event.wholes(key, 0, INT64_MAX / 2)) {
    const auto found = number_of_id_.find(id);
    if (found != number_of_id_.end()) {
      numbers.push_back(found->second);
    } else {
      event.mistake(*event.find(key), fmt::format("parameter {} was not declared by a \"parameter\" event before", id));
    }
  }
  return numbers;
}

std::optional<std::pair<int, const DeclaredParameter*>> ProgramReader::parameter_of(const Event& event) const {
  const Json* id = event.required("parameter");
  const std::int64_t number = event.whole("parameter", 0, INT64_MAX / 2);
  if (id == nullptr) return std::nullopt;
  const auto found = number_of_id_.find(number);
  if (found != number_of_id_.end()) return std::pair(found->second, &declared_.at(number));
  event.mistake(*id, fmt::format("parameter {} was not declared by a \"parameter\" event before", number));
  return std::nullopt;
}

std::optional<ProgramReader::Part> ProgramReader::part(const Event& event) const {
  const auto parameter = parameter_of(event);
  if (!parameter) return std::nullopt;
  const DeclaredParameter& declared = *parameter->second;
  if (event.find("range") != nullptr || event.find("box") != nullptr)
    return region(event, parameter->first, declared, read_piece(event, event.object(), declared));
  const std::int64_t piece = event.whole("piece");
  if (piece >= static_cast<std::int64_t>(declared.pieces.size())) {
    if (const Json* place = event.find("piece"))
      event.mistake(*place,
                    fmt::format("piece {} of \"{}\", which has {}", piece, declared.name, declared.pieces.size()));
    return std::nullopt;
  }
  return region(event, parameter->first, declared, declared.pieces[at(piece)]);
}

ProgramReader::Part ProgramReader::region(const Event& event, int parameter, const DeclaredParameter& declared,
                                          const std::vector<Interval>& piece) const {
  Part part;
  part.parameter = parameter;
  part.region = tables_.region(parameter, declared, piece);
  std::int64_t whole = 1;
  for (const Interval& interval : piece) whole *= interval.size();
  part.first = event.find("first") == nullptr ? 0 : event.whole("first", 0, whole);
  part.elements =
      event.find("elements") == nullptr ? whole - part.first : event.whole("elements", 0, whole - part.first);
  return part;
}

std::vector<std::vector<int>> ProgramReader::ranks_by_piece(const Event& event, std::size_t pieces) const {
  const std::vector<std::int64_t> by_rank = event.wholes("pieces", 0, static_cast<std::int64_t>(pieces) - 1);
  std::vector<std::vector<int>> ranks(pieces);
  if (by_rank.size() != details_.ranks.size()) {
    event.mistake(*event.find("pieces"),
                  fmt::format("\"pieces\" has {}, and the program has {}", counted(by_rank.size(), "number"),
                              counted(details_.ranks.size(), "rank")));
    return ranks;
  }
  for (std::size_t i = 0; i < by_rank.size(); ++i) ranks[at(by_rank[i])].push_back(details_.ranks[i]);
  return ranks;
}

int ProgramReader::define(const Event& event, const Json& number, int call, std::int64_t elements) {
  const auto next = static_cast<std::int64_t>(program_.sources.size());
  if (whole_number_of(number) != next)
    event.mistake(number, fmt::format("expected source {}, the next one, found {}", next, number.describe()));
  program_.sources.push_back({std::max(call, -1), elements});
  details_.contribution_of.push_back(call == contributes ? static_cast<int>(details_.contributions.size()) : -1);
  details_.square_of.push_back(-1);
  return static_cast<int>(next);
}

void ProgramReader::contribution(const Event& event, int line) {
  const std::optional<Part> part = this->part(event);
  const Json* source = event.required("source");
  const auto step = static_cast<int>(event.whole("step"));
  const auto micro_batch = static_cast<int>(event.whole("micro_batch", 0, 1 << 20));
  if (!part || source == nullptr) return;
  ExtractedContribution one;
  one.step = step;
  one.micro_batch = micro_batch;
  one.region = part->region;
  one.first = part->first;
  one.elements = part->elements;
  one.partial = read_partial(event, header_.axes);
  one.line = line;
  one.source = define(event, *source, contributes, part->elements);
  details_.contributions.push_back(one);
  last_contributed_ = std::max(last_contributed_, step);
  RankStep& of_step = steps_[step];
  of_step.micro_batches = std::max(of_step.micro_batches, micro_batch + 1);
  if (of_step.complete)
    event.mistake(fmt::format("a contribution to optimizer step {} after its \"step\" event", step));
}

std::vector<symbolic::SourceTerm> ProgramReader::terms(const Event& event, const Json& list, std::int64_t count) const {
  std::vector<symbolic::SourceTerm> terms;
  for (const Json& term : list.items()) {
    if (term.items().size() != 3) {
      event.mistake(term, fmt::format("a term: expected [coefficient, source, offset], found {}", term.describe()));
      continue;
    }
    const auto coefficient = fraction_in(event, term.items()[0], "a coefficient");
    const auto source = whole_number_of(term.items()[1]);
    if (!source || *source < 0 || *source >= static_cast<std::int64_t>(program_.sources.size())) {
      event.mistake(term.items()[1],
                    fmt::format("expected a source that was defined before, found {}", term.items()[1].describe()));
      continue;
    }
    const std::int64_t elements = program_.sources[at(*source)].elements;
    if (count > elements) {
      event.mistake(term, fmt::format("{} of source {}, which has {}", counted(count, "element"), *source, elements));
      continue;
    }
    const auto offset = number_in(event, term.items()[2], "an offset", 0, elements - count);
    if (coefficient && offset) terms.push_back({*coefficient, static_cast<int>(*source), *offset});
  }
  return terms;
}

void ProgramReader::no_sum(const Event& event, const Json& what, symbolic::ContentPart& part) {
  const Json *never = what.find("never"), *in_flight = what.find("in_flight");
  const Json* why = never != nullptr ? never : in_flight;
  if (why == nullptr || !why->is_string() || why->text().empty()) {
    event.mistake(what, "expected why it is no sum: {\"never\": why} or {\"in_flight\": why}");
    return;
  }
  part.unknown = why->text();
  part.no_sum = never != nullptr ? symbolic::NoSum::never : symbolic::NoSum::in_flight;
}

ProgramContent ProgramReader::content(const Event& event, const Json& list, std::int64_t elements) const {
  ProgramContent content;
  if (!list.is_array()) {
    event.mistake(list, fmt::format("expected a list of [first, count, terms], found {}", list.describe()));
    return content;
  }
  std::int64_t end = 0;
  for (const Json& item : list.items()) {
    if (item.items().size() != 3) {
      event.mistake(item, fmt::format("expected [first, count, terms], found {}", item.describe()));
      continue;
    }
    const auto first = number_in(event, item.items()[0], "the first element", end, elements);
    if (!first) continue;
    const auto count = number_in(event, item.items()[1], "how many elements", 1, elements - *first);
    if (!count) continue;
    symbolic::ContentPart part;
    part.first = *first;
    part.count = *count;
    end = *first + *count;
    const Json& what = item.items()[2];
    if (what.is_string()) {
      part.unknown = what.text();
      if (part.unknown.empty()) event.mistake(what, "expected why nobody knows it, found an empty string");
    } else if (what.is_object()) {
      no_sum(event, what, part);
    } else if (what.is_array()) {
      part.terms = terms(event, what, *count);
    } else {
      event.mistake(what, fmt::format("expected a list of terms, why nobody knows them as a string, or why there are "
                                      "none as an object, found {}",
                                      what.describe()));
    }
    content.push_back(std::move(part));
  }
  return content;
}

std::vector<std::int64_t> ProgramReader::splits(const Event& event, std::string_view key) const {
  if (event.find(key) == nullptr) return {};
  std::vector<std::int64_t> splits = event.wholes(key, 0, most_elements_of_call);
  if (splits.size() > static_cast<std::size_t>(header_.world))
    event.mistake(*event.find(key), fmt::format("\"{}\" has {}, and there are {}", key,
                                                counted(splits.size(), "number"), counted(header_.world, "rank")));
  return splits;
}

void ProgramReader::collective(const Event& event, int line) {
  const std::optional<ProgramOp> op = read_op(event);
  const std::int64_t elements = event.whole("elements", 0, most_elements_of_call);
  const auto step = static_cast<int>(event.whole("step"));
  ProgramCall call;
  CapturedCollective& captured = details_.calls.emplace_back();
  captured.line = line;
  captured.step = step;
  captured.early = event.boolean("before", false);
  captured.op = event.text("op", "");
  captured.elements = call.elements = elements;
  captured.dtype = call.dtype = text_if_there(event, "dtype");
  captured.reduce = call.reduce = text_if_there(event, "reduce");
  captured.call = text_if_there(event, "call");
  if (event.find("parameters") != nullptr) captured.parameters = declared(event, "parameters");
  call.op = op.value_or(ProgramOp::barrier);
  call.async = event.boolean("async", false);
  if (const Json* factor = event.find("factor")) call.factor = fraction_in(event, *factor, "\"factor\"").value_or(1);
  call.input_splits = splits(event, "input_splits");
  call.output_splits = splits(event, "output_splits");
  bool usable = op.has_value();
  if (usable && !symbolic::program_operation(*op).in_pairs) {
    const std::optional<int> group = tables_.group(event, details_.ranks);
    usable = group.has_value();
    call.group = group.value_or(-1);
  }
  usable = usable && root_and_peer(event, call);
  if (const Json* root = event.find("root"); root != nullptr && root->is_number())
    captured.root = static_cast<int>(whole_number_of(*root).value_or(-1));
  call.words = call_words(captured);
  if (const Json* input = event.find("input")) call.input = content(event, *input, elements);
  const bool knows_terms = std::any_of(call.input.begin(), call.input.end(),
                                       [](const symbolic::ContentPart& part) { return !part.terms.empty(); });
  if (captured.reduce == "premul_sum" && knows_terms) event.required("factor");
  const auto number = static_cast<int>(program_.calls.size());
  if (const Json* output = event.find("output")) {
    const Event inner = event.inner(*output);
    const Json* source = inner.required("source");
    const std::int64_t taken = inner.whole("elements", 0, most_elements_of_call);
    if (source != nullptr) call.output = define(event, *source, number, taken);
  }
  // What cannot be used is told, and no program is composed then.
  program_.calls.push_back(std::move(call));
  program_.order.push_back(number);
}

bool ProgramReader::root_and_peer(const Event& event, ProgramCall& call) const {
  if (symbolic::program_operation(call.op).in_pairs) {
    const std::optional<symbolic::ProgramPeer> peer = tables_.peer(event, details_.ranks);
    if (peer) call.peer = *peer;
    return peer.has_value();
  }
  if (!symbolic::program_operation(call.op).rooted) return true;
  const Json* root = event.required("root");
  if (root == nullptr) return false;
  const std::optional<int> position = tables_.position(event, root->is_object() ? event.inner(*root) : event,
                                                       root->is_object(), call.group, details_.ranks);
  call.root = position.value_or(-1);
  return position.has_value();
}

void ProgramReader::result(const Event& event, int line) {
  const Json* what = event.required("content");
  const auto parameter = parameter_of(event);
  if (!parameter || what == nullptr) return;
  const auto elements_of = [&](const Part& part) {
    if (what->is_null()) return -1;
    const auto number = static_cast<int>(program_.results.size());
    program_.order.push_back(~number);
    program_.results.push_back(content(event, *what, part.elements));
    return number;
  };
  if (event.find("pieces") == nullptr) {
    const std::optional<Part> part = this->part(event);
    if (part) add_result(event, *part, {}, elements_of(*part), line);
  } else {
    const DeclaredParameter& declared = *parameter->second;
    const std::vector<std::vector<int>> by_piece = ranks_by_piece(event, declared.pieces.size());
    std::optional<std::pair<std::int64_t, int>> common;  // elements and content of the pieces before
    for (std::size_t piece = 0; piece < by_piece.size(); ++piece) {
      if (by_piece[piece].empty()) continue;
      const Part part = region(event, parameter->first, declared, declared.pieces[piece]);
      if (!common) common.emplace(part.elements, elements_of(part));
      if (part.elements != common->first)
        return event.mistake(*event.find("pieces"), fmt::format("pieces of {} and {} elements have one content",
                                                                common->first, part.elements));
      add_result(event, part, by_piece[piece], common->second, line);
    }
  }
  places_.emplace_back(static_cast<int>(event.whole("step")), what->place(), "a result");
}

void ProgramReader::add_result(const Event& event, const Part& part, std::vector<int> ranks, int content, int line) {
  ExtractedResult one;
  one.step = static_cast<int>(event.whole("step"));
  one.region = part.region;
  one.first = part.first;
  one.elements = part.elements;
  one.line = line;
  one.content = content;
  one.ranks = std::move(ranks);
  details_.results.push_back(std::move(one));
}

}  // namespace lockstep::live
