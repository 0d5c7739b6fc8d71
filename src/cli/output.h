// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

#include "lockstep/report.h"
#include "src/report/readable_text.h"

namespace lockstep::cli {

/// Writes to standard error, readably. Where that is full or closed the text is lost, and nothing else is.
void tell(const std::string& text);

/// A line of progress with what moves the cursor of a terminal, to standard error.
void show_progress(const std::string& line);

/// From now on tell() says nothing: another process of the same job says it. `silent` false ends that.
void be_silent(bool silent);

/// Whether tell() was given something while it was silent, and the end of that silence, in which it is said.
bool is_held_back();
void say_what_was_held_back();

/// Whoever reads our standard output has gone away: exit status 141, quietly.
class ClosedPipe : public std::exception {};

/// The disk is full or the like: exit status 3.
class WriteFailure : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Where a report goes: standard output, or a file that is written beside its place and renamed when
/// it is complete, so that nobody ever sees half a report. A device, a pipe, or a stream that is open already, such as
/// "/dev/stderr", is written on and never replaced. What is written is readable_text().
class Output {
 public:
  /// "" is standard output. Throws InputError where the file cannot be made.
  explicit Output(std::string path, report::ReadableText::Kind kind = report::ReadableText::Kind::text);
  /// Removes what was written if commit() was not reached.
  ~Output();
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;

  void write(std::string_view text);
  Write writer() {
    return [this](std::string_view text) { write(text); };
  }
  /// Hands on what was written so far.
  void flush();
  /// What moves a terminal's cursor.
  void control(std::string_view text);
  /// The file that it goes to may be one that was read: the user wants it changed.
  void may_replace_input() { may_replace_input_ = true; }
  /// Hands on everything and puts the file in its place. Throws ReplacedInput where that was read by this process.
  void commit();
  /// For colour: the descriptor of standard output, -1 for a file.
  int terminal() const;

 private:
  std::string path_, temporary_, buffer_;
  report::ReadableText readable_;
  bool may_replace_input_ = false;
  int descriptor_ = -1;
};

/// Opens standard error where it is closed, so that no file that is written gets its number.
void keep_standard_error();
/// SIGPIPE is seen as a failed write; an interrupt removes unfinished files and exits with 130.
void install_signal_handlers();

}  // namespace lockstep::cli
