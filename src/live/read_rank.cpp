// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <system_error>

#include "src/base/at.h"
#include "src/base/inputs.h"
#include "src/live/captured_run.h"
#include "src/live/declarations.h"
#include "src/live/event.h"
#include "src/live/fractions.h"
#include "src/live/precision.h"
#include "src/symbolic/program_operations.h"

namespace lockstep::live {

namespace {

std::string read_text(const std::string& file) {
  // A pipe has no end until somebody writes to it.
  std::error_code error;
  std::ifstream stream;
  if (std::filesystem::is_regular_file(file, error)) stream.open(file, std::ios::binary);
  std::ostringstream text;
  if (stream.is_open()) text << stream.rdbuf();
  if (!stream.is_open() || !stream || (text.str().empty() && stream.bad()))
    throw InputError({Diagnostic{{}, fmt::format("{}: it cannot be read", file)}});
  note_input(file);
  return std::move(text).str();
}

constexpr std::int64_t newest_version = 2;

/// Adds the lines of one rank's file, one by one, to its record.
class Reader {
 public:
  explicit Reader(std::string file) { record_.file = std::move(file); }

  RankRecord run() {
    const auto whole = std::make_shared<Source>(Source{record_.file, read_text(record_.file)});
    const std::string& text = whole->text;
    for (std::size_t begin = 0; begin < text.size();) {
      const std::size_t end = std::min(text.find('\n', begin), text.size());
      ++line_;
      line(whole, begin, end);
      begin = end + 1;
    }
    if (!all_.empty()) throw InputError(all_.sorted());
    return std::move(record_);
  }

 private:
  void line(const std::shared_ptr<const Source>& whole, std::size_t begin, std::size_t end) {
    // Each line is a text of its own; its mistakes are told with their place in the file.
    auto own = std::make_shared<Source>(Source{whole->name, whole->text.substr(begin, end - begin)});
    if (own->text.find_first_not_of(" \t\r") == std::string::npos) return;
    Diagnostics mistakes;
    const Json json = parse_json(own, mistakes);
    const bool last = end == whole->text.size();
    if (last && !mistakes.empty()) {
      record_.cut_off = true;
      return;
    }
    if (mistakes.empty()) event(json, mistakes);
    if (mistakes.empty()) return;
    for (const Diagnostic& mistake : mistakes.sorted()) {
      const Place& place = mistake.place;
      all_.add(
          {whole, begin + std::min(place.begin, end - begin), begin + std::min(place.end, end - begin), place.pointer},
          mistake.message);
    }
  }

  void event(const Json& json, Diagnostics& mistakes) {
    const Json* name = json.is_object() ? json.find("event") : nullptr;
    if (name == nullptr || !name->is_string()) {
      mistakes.add(json.place(), fmt::format("expected an object with the key \"event\", found {}",
                                             json.is_object() ? "one without it" : json.describe()));
      return;
    }
    const std::string& kind = name->text();
    const Event event(json, kind, mistakes);
    if (kind == "run") return run_line(event);
    if (!seen_header_) {
      if (all_.empty())
        mistakes.add(name->place(), fmt::format("expected \"run\" as the first event, found \"{}\"", kind));
      seen_header_ = true;
      return;
    }
    if (kind == "parameter") return parameter(event);
    if (kind == "contribution") return contribution(event);
    if (kind == "collective") return collective(event);
    if (kind == "scale") return scale(event);
    if (kind == "result") return result(event);
    if (kind == "step") return step(event);
    if (kind == "gap") return gap(event);
    if (kind == "loss") return late_loss(event);
    if (kind == "note") return record_.notes.push_back(event.required_text("text"));
    if (kind == "end") record_.ended = true;
  }

  void run_line(const Event& event) {
    if (seen_header_) return event.mistake("a second \"run\" line; a file holds one run of one rank");
    seen_header_ = true;
    Header& header = record_.header;
    const std::int64_t version = event.whole("lockstep_capture", 1);
    if (version > newest_version)
      event.mistake(
          fmt::format("it is of version {} of the capture format; this program reads 1 to {}: a newer one is "
                      "needed",
                      version, newest_version));
    header.world = static_cast<int>(event.whole("world", 1, 1 << 20));
    header.rank = static_cast<int>(event.whole("rank", 0, header.world - 1));
    header.adapter = event.text("adapter", "");
    header.sums = static_cast<int>(event.whole("sums", 64, 1 << 16));
    if (header.sums % 64 != 0) event.mistake(fmt::format("\"sums\" is {}; expected a multiple of 64", header.sums));
    header.seed = static_cast<std::uint64_t>(event.whole("seed", 0, INT64_MAX));
    if (event.find("one_of") != nullptr) header.one_of = static_cast<int>(event.whole("one_of", 1, 1 << 20));
    header.versions = read_versions(event);
    read_mesh(event, header);
    header.collectives = event.boolean("collectives", false);
    header.loss = read_loss(event);
    header.loss_from = text_if_any(event, "loss_from");
  }

  /// What the losses of all optimizer steps were seen to be, as the capture ends.
  void late_loss(const Event& event) {
    record_.seen_loss = read_loss(event);
    record_.seen_loss_from = text_if_any(event, "loss_from");
  }

  void parameter(const Event& event) {
    const std::int64_t id = event.whole("id", 0, INT64_MAX / 2);
    std::optional<DeclaredParameter> parameter = read_declared(event);
    if (!parameter) return;
    if (!names_.insert(parameter->name).second)
      return event.mistake(fmt::format("a parameter \"{}\" is declared twice", parameter->name));
    if (!record_.parameter_of_id.emplace(id, static_cast<int>(record_.parameters.size())).second)
      return event.mistake(fmt::format("parameter {} is declared twice", id));
    record_.parameters.push_back(std::move(*parameter));
  }

  /// What contributions and results have in common.
  std::optional<SketchedTensor> tensor(const Event& event) const {
    SketchedTensor tensor;
    tensor.rank = record_.header.rank;
    tensor.line = line_;
    const Json* id = event.required("parameter");
    const std::int64_t number = event.whole("parameter", 0, INT64_MAX / 2);
    const auto found = record_.parameter_of_id.find(number);
    if (id == nullptr) return std::nullopt;
    if (found == record_.parameter_of_id.end()) {
      event.mistake(*id, fmt::format("parameter {} was not declared by a \"parameter\" line before", number));
      return std::nullopt;
    }
    tensor.parameter = found->second;
    const DeclaredParameter& parameter = record_.parameters[at(found->second)];
    const std::int64_t piece = event.whole("piece");
    if (piece >= static_cast<std::int64_t>(parameter.pieces.size())) {
      if (const Json* place = event.find("piece"))
        event.mistake(*place,
                      fmt::format("piece {} of \"{}\", which has {}", piece, parameter.name, parameter.pieces.size()));
      return std::nullopt;
    }
    tensor.piece = static_cast<int>(piece);
    return tensor;
  }

  void sketch(const Event& event, SketchedTensor& tensor) const {
    tensor.partial = read_partial(event, record_.header.axes);
    tensor.row = event.whole("row");
    tensor.hash = event.hash("hash");
    tensor.dtype = event.dtype("dtype");
    tensor.non_finite = static_cast<std::uint64_t>(event.whole("nonfinite", 0, INT64_MAX));
    tensor.loss_scale = event.factor("loss_scale");
  }

  RankStep& step_of(const Event& event) { return record_.steps[static_cast<int>(event.whole("step"))]; }

  void contribution(const Event& event) {
    RankStep& step = step_of(event);
    std::optional<SketchedTensor> one = tensor(event);
    if (!one) return;
    one->micro_batch = static_cast<int>(event.whole("micro_batch", 0, 1 << 20));
    sketch(event, *one);
    record_.parameters[at(one->parameter)].frozen = false;  // it was unfrozen since
    step.micro_batches = std::max(step.micro_batches, one->micro_batch + 1);
    step.contributions.push_back(*one);
  }

  void result(const Event& event) {
    RankStep& step = step_of(event);
    std::optional<SketchedTensor> one = tensor(event);
    if (!one) return;
    const Json* row = event.required("row");
    if (row != nullptr && !row->is_null()) sketch(event, *one);
    if (event.find("clipped") != nullptr) one->clipped = event.hash("clipped");
    one->changed = event.boolean("changed", false);
    step.results.push_back(*one);
  }

  void collective(const Event& event) {
    RankStep& step = step_of(event);
    const std::string op = event.required_text("op"), name = text_if_any(event, "dtype");
    const symbolic::ProgramOperation* row = symbolic::program_operation_named(op);
    if (row == nullptr || !row->in_pairs) record_.collectives.push_back(call(event, op, name, step));
    // Activations round no gradient. Where what a call carried was not recorded, it is taken for gradients if it
    // reduces.
    const Json* carried = event.find("parameters");
    if (carried != nullptr ? carried->items().empty() : row == nullptr || !row->reduces) return;
    for (const Dtype dtype : {Dtype::float32, Dtype::float64, Dtype::bfloat16, Dtype::float16}) {
      if (name != name_of(dtype)) continue;
      step.coarsest_call = coarser(step.coarsest_call.value_or(dtype), dtype);
      if (carried == nullptr) continue;
      for (const int parameter : declared(event, "parameters")) {
        Dtype& own = step.coarsest_of.try_emplace(parameter, dtype).first->second;
        own = coarser(own, dtype);
      }
    }
  }

  static std::string text_if_any(const Event& event, std::string_view key) {
    return event.find(key) == nullptr ? "" : event.text_or_null(key).value_or("");
  }

  CapturedCollective call(const Event& event, const std::string& op, const std::string& dtype,
                          const RankStep& step) const {
    CapturedCollective call;
    call.line = line_;
    call.step = static_cast<int>(event.whole("step"));
    call.op = op;
    for (const std::int64_t rank : event.wholes("group", 0, most_whole)) call.group.push_back(static_cast<int>(rank));
    std::sort(call.group.begin(), call.group.end());
    call.elements = event.whole("elements", 0, INT64_MAX / 2);
    call.dtype = dtype;
    call.reduce = text_if_any(event, "reduce");
    call.call = text_if_any(event, "call");
    if (event.find("root") != nullptr) call.root = static_cast<int>(event.whole("root", 0, most_whole));
    if (event.find("parameters") != nullptr) call.parameters = declared(event, "parameters");
    if (const Json* pass = event.find("micro_batch"); pass != nullptr && !pass->is_null()) {
      call.in_backward = true;
      call.passes = static_cast<int>(event.whole("micro_batch", 0, 1 << 20)) + 1;
    } else {
      call.passes = step.micro_batches;
    }
    call.after_results = !step.results.empty();
    return call;
  }

  void scale(const Event& event) {
    const RankStep& step = step_of(event);
    CapturedCollective call;
    call.line = line_;
    call.step = static_cast<int>(event.whole("step"));
    call.op = "scale";
    call.group = {record_.header.rank};
    call.call = text_if_any(event, "call");
    call.parameters = declared(event, "parameters");
    call.passes = step.micro_batches;
    call.after_results = !step.results.empty();
    const std::string op = event.required_text("op");
    if (op != "mul" && op != "div") event.mistake(fmt::format("\"op\" is \"{}\"; expected \"mul\" or \"div\"", op));
    if (event.required("by") == nullptr) return;
    // It may have been rounded to float32.
    const double by = event.factor("by");
    call.factor = nearest_fraction(by, by * 0x1p-24);
    if (call.factor && op == "div") call.factor = Rational(1) / *call.factor;
    record_.collectives.push_back(std::move(call));
  }

  /// Parameters by their ids.
  std::vector<int> declared(const Event& event, std::string_view key) const {
    std::vector<int> numbers;
    for (const std::int64_t id : event.wholes(key, 0, INT64_MAX / 2)) {
      const auto found = record_.parameter_of_id.find(id);
      if (found != record_.parameter_of_id.end()) {
        numbers.push_back(found->second);
      } else {
        event.mistake(*event.find(key),
                      fmt::format("parameter {} was not declared by a \"parameter\" line before", id));
      }
    }
    return numbers;
  }

  void gap(const Event& event) {
    CaptureGap gap = read_gap(event);
    if (!gap.of_all) gap.parameters = declared(event, "parameters");
    record_.gaps.push_back(std::move(gap));
  }

  void step(const Event& event) {
    RankStep& step = step_of(event);
    if (step.complete) return event.mistake("a second \"step\" line of this step");
    step.complete = true;
    step.skipped = event.boolean("skipped", false);
    if (event.find("zeroed") != nullptr) {
      for (const std::int64_t micro_batch : event.wholes("zeroed", 1, 1 << 20))
        step.zeroed.push_back(static_cast<int>(micro_batch));
    }
    if (event.find("waiting") != nullptr) step.waiting = declared(event, "waiting");
    read_micro_batches(event, step);
  }

  RankRecord record_;
  Diagnostics all_;
  std::set<std::string> names_;  // of parameters
  int line_ = 0;
  bool seen_header_ = false;
};

}  // namespace

RankRecord read_rank(const std::string& file) { return Reader(file).run(); }

}  // namespace lockstep::live
