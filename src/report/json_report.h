// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "lockstep/report.h"
#include "src/report/json_writer.h"

namespace lockstep::report {

/// The report of one scenario as one object, to the letter of the report format.
/// `timeline`: with the keys of write_json_timeline.
void write_json_result(const CheckResult& result, bool all, JsonWriter& json, bool timeline = false);
/// The report of a captured run as one object (docs/verify.md).
void write_json_run(const VerifyResult& result, JsonWriter& json);
/// "layout" of a report; axes of size "any" say so.
void write_json_layout(const Layout& layout, JsonWriter& json);

/// `check --format json`.
class JsonReporter : public Reporter {
 public:
  JsonReporter(const ReportOptions& options, Write write) : options_(options), json_(std::move(write)) {}
  void add(const CheckResult& result) override;
  void add(const VerifyResult& result) override { write_json_run(result, json_); }
  void finish() override;

 private:
  ReportOptions options_;
  JsonWriter json_;
  bool open_ = false;
};

}  // namespace lockstep::report
