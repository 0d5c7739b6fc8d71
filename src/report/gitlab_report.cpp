// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "src/report/clean_text.h"
#include "src/report/finding_reporters.h"
#include "src/report/rule_findings.h"

namespace lockstep::report {

void GitlabReporter::report(const FileFindings& file) {
  for (const RuleFinding& finding : file.findings) {
    const std::string path = repository_path(finding.place.file);
    json_.begin_object();
    json_.key("description").string(one_line_text(finding.message));
    json_.key("check_name").string(finding.rule().id);
    // Unique in the whole report: GitLab shows the first alone of several with one.
    json_.key("fingerprint").string(fmt::format("{}:{}", path, finding.fingerprint));
    json_.key("severity")
        .string(finding.kind == Mistake::not_checked ? "blocker"
                : finding.kind == Mistake::undecided ? "major"
                                                     : "critical");
    json_.key("location").begin_object();
    json_.key("path").string(path);
    json_.key("lines").begin_object(true);
    json_.key("begin").number(finding.place.line);
    json_.end_object();
    json_.end_object();
    json_.end_object();
  }
}

}  // namespace lockstep::report
