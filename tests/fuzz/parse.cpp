// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <memory>

#include "lockstep/importer.h"
#include "lockstep/scenario.h"
#include "lockstep/symbolic.h"
#include "src/tensors/header.h"
#include "tests/fuzz/fuzz.h"

namespace lockstep::fuzz {

namespace {

void parse_scenario(std::string_view text) {
  Json resolved;
  try {
    const Scenario scenario = read_scenario(std::make_shared<const Source>(Source{"fuzz.json", std::string(text)}));
    if (!scenario.layout.any.empty()) return;
    resolved = scenario.resolved;
  } catch (const InputError& error) {
    if (error.diagnostics().empty()) throw Finding("an InputError that says nothing");
    return;
  }
  // What it expands to is a scenario, and expands to itself.
  const std::string written = write_json(resolved);
  try {
    const Scenario again = read_scenario(std::make_shared<const Source>(Source{"resolved.json", written}));
    if (write_json(again.resolved) != written) throw Finding("what a scenario expands to expands to something else");
  } catch (const InputError& error) {
    throw Finding(std::string("what a scenario expands to cannot be read:\n") + error.what());
  }
}

void parse_expression(std::string_view text) {
  Expression expression;
  try {
    expression = Expression::parse(text);
  } catch (const ExpressionError& error) {
    if (error.offset > text.size()) throw Finding("a mistake beyond the end of the expression");
    return;
  }
  const Mesh mesh{Layout{}};
  const Batch batch;
  Environment environment;
  environment.mesh = &mesh;
  environment.counts = &batch;
  environment.rank = environment.step = environment.micro_batch = 0;
  // A fraction is read back as a division, so that texts may differ once; values may not.
  const auto value = [&](const Expression& of) -> std::optional<ExpressionValue> {
    try {
      return of.evaluate(environment);
    } catch (const ExpressionError&) {
      return std::nullopt;
    }
  };
  const std::string written = expression.to_string();
  try {
    const Expression again = Expression::parse(written);
    if (value(again) != value(expression)) throw Finding("an expression is read back as another: " + written);
  } catch (const ExpressionError& error) {
    throw Finding("an expression cannot be read back: " + written + ": " + error.what());
  }
}

void parse_selector(std::string_view text) {
  if (Selectors::check(text)) return;
  Parameter parameter;
  parameter.name = "decoder.layers.0.weight";
  parameter.tags = {"norm", "bias"};
  parameter.tied = "word_embeddings";
  Selectors({std::string(text)}).chooses(parameter, 64);
  Selectors::fits(text, parameter, 64);
}

/// Two pipeline stages and two data-parallel ranks with a tied parameter of two uses.
Schedule small_schedule() {
  Layout layout;
  layout.dp = layout.dp_shard = layout.pp = 2;
  const Mesh mesh(layout);
  Diagnostics diagnostics;
  std::vector<Parameter> parameters(3);
  parameters[0].name = "embedding";
  parameters[1].name = "head";
  parameters[2].name = "layer.weight";
  parameters[0].tied = parameters[1].tied = "word_embeddings";
  parameters[1].stage = 1;
  parameters[1].uses = {"main", "aux"};
  for (Parameter& parameter : parameters) parameter.shape = {8};
  Model model(mesh, parameters, diagnostics);
  return Schedule{mesh, std::move(model), Batch(), {}, "grad"};
}

void parse_one_formula(std::string_view text) {
  static const Schedule schedule = small_schedule();
  static const std::vector<Term> support = reference_terms(schedule, 0, 0, 0);
  std::vector<Term> terms;
  try {
    terms = parse_formula(schedule, 1, 0, std::string(text), support);
  } catch (const ExpressionError& error) {
    if (error.offset > text.size()) throw Finding("a mistake beyond the end of the formula");
    return;
  }
  const std::string printed = print_formula(schedule, 1, 0, terms, support);
  std::vector<Term> again;
  try {
    again = parse_formula(schedule, 1, 0, printed, support);
  } catch (const ExpressionError& error) {
    throw Finding("a formula cannot be read back: " + printed + ": " + error.what());
  }
  bool equal = again.size() == terms.size();
  for (std::size_t i = 0; equal && i < terms.size(); ++i) {
    equal = again[i].rank == terms[i].rank && again[i].micro_batch == terms[i].micro_batch &&
            again[i].site_use == terms[i].site_use && again[i].coefficient == terms[i].coefficient;
  }
  if (!equal) throw Finding("a formula is read back as another: " + printed);
}

/// "FORMAT:NAME:TEXT": the name decides how it is read.
void import_text(std::string_view text) {
  const std::size_t first = text.find(':'), second = text.find(':', first == text.npos ? first : first + 1);
  if (second == text.npos) return;
  ImportRequest request;
  request.format = text.substr(0, first);
  const auto& formats = import_formats();
  if (std::none_of(formats.begin(), formats.end(), [&](const ImportFormat& one) { return one.name == request.format; }))
    return;
  request.world = 8;
  request.files = {std::make_shared<const Source>(
      Source{std::string(text.substr(first + 1, second - first - 1)), std::string(text.substr(second + 1))})};
  try {
    write_json(import_configuration(request).scenario);
  } catch (const InputError& error) {
    if (error.diagnostics().empty()) throw Finding("an InputError that says nothing");
    for (const Diagnostic& diagnostic : error.diagnostics()) render(diagnostic);
  }
}

/// The header of a file with 64 bytes of elements behind it.
void read_tensor_header(std::string_view header, bool npy) {
  const std::uint64_t begin = (npy ? 10 : 8) + header.size(), end = begin + 64;
  std::vector<StoredTensor> found;
  try {
    if (npy) {
      found = {tensors::read_npy_header(header, begin, end)};
    } else {
      found = tensors::read_safetensors_header(header, begin, end);
    }
  } catch (const tensors::HeaderError& error) {
    if (std::string_view(error.what()).empty()) throw Finding("a HeaderError that says nothing");
    return;
  }
  std::uint64_t at = begin;
  for (const StoredTensor& tensor : found) {
    if (tensor.begin != at) throw Finding("tensors leave gaps or overlap");
    at += tensor.bytes;
    if (tensor.hashed && (tensor.count == 0) != (tensor.bytes == 0)) throw Finding("elements that take no bytes");
  }
  if (at != end) throw Finding("tensors do not fill their file");
}

void parse_number(std::string_view text) {
  const std::optional<Rational> number = Rational::parse(text);
  if (!number) return;
  if (Rational::parse(number->to_string()) != number) throw Finding("a number is read back as another");
  number->modulo_prime61();
  number->bits();
}

}  // namespace

void parse(std::string_view input) {
  const std::string_view kind = input.substr(0, 2);
  const std::string_view rest = input.substr(kind.size());
  if (kind == "E:") {
    parse_expression(rest);
  } else if (kind == "S:") {
    parse_selector(rest);
  } else if (kind == "F:") {
    parse_one_formula(rest);
  } else if (kind == "R:") {
    parse_number(rest);
  } else if (kind == "T:" || kind == "N:") {
    read_tensor_header(rest, kind == "N:");
  } else if (kind == "I:") {
    import_text(rest);
  } else {
    parse_scenario(input);
  }
}

}  // namespace lockstep::fuzz
