// SPDX-License-Identifier: Apache-2.0
#include "src/live/read_program.h"

namespace lockstep::live {

void ProgramReader::square(const Event& event) {
  const auto parameter = parameter_of(event);
  const Json* source = event.required("source");
  const auto step = static_cast<int>(event.whole("step"));
  if (!parameter || source == nullptr) return;
  ExtractedSquare one;
  one.step = step;
  one.parameter = parameter->first;
  places_.emplace_back(step, source->place(), "squares");
  one.source = define(event, *source, calls_nothing, 1);
  details_.square_of.back() = static_cast<int>(details_.squares.size());
  details_.squares.push_back(one);
}

void ProgramReader::norm(const Event& event, int line) {
  const Json* what = event.required("content");
  if (what == nullptr) return;
  ExtractedNorm one;
  one.step = static_cast<int>(event.whole("step"));
  one.parameters = declared(event, "parameters");
  one.call = event.find("call") == nullptr ? "" : event.text_or_null("call").value_or("");
  one.line = line;
  places_.emplace_back(one.step, what->place(), "a norm");
  one.loss_scale = event.factor("loss_scale");
  one.content = static_cast<int>(program_.results.size());
  program_.order.push_back(~one.content);
  program_.results.push_back(content(event, *what, 1));
  details_.norms.push_back(std::move(one));
}

}  // namespace lockstep::live
