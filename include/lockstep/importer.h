// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/diagnostic.h"
#include "lockstep/json.h"
#include "lockstep/scenario.h"

namespace lockstep {

/// One configuration format that lockstep can import.
struct ImportFormat {
  std::string name;   ///< "megatron"
  std::string title;  ///< "Megatron-LM"
  std::string reads;  ///< what its files are, in a sentence
  /// The sizes of a request ("tp") that its configurations do not hold, so that it reads them.
  std::vector<std::string> sizes;
  bool says_model = true;  ///< its configurations say what the model is: a request names none
};

/// Every format, in the order of the help.
const std::vector<ImportFormat>& import_formats();

/// A library that reads a syntax and was looked for when lockstep was configured.
struct ImportSyntax {
  std::string name;     ///< "YAML"
  std::string library;  ///< "yaml-cpp"
  bool built = false;
};
const std::vector<ImportSyntax>& import_syntaxes();

/// The largest number of ranks, and of micro-batches, that a request may name.
constexpr std::int64_t largest_import_size = 1 << 20;

/// A configuration, and what its user says beyond it. Numbers of 0 and empty texts are not given. What the format has
/// no use for is a mistake.
struct ImportRequest {
  std::string format;                                ///< the name of one of import_formats()
  std::vector<std::shared_ptr<const Source>> files;  ///< in the order given; a format that knows only one says so
  std::vector<std::string> arguments;                ///< a framework's own command line
  std::int64_t world = 0;                            ///< ranks
  std::int64_t tp = 0, pp = 0, cp = 0, sp = 0, ep = 0;
  std::int64_t micro_batches = 0;      ///< replaces what the configuration says
  std::string model;                   ///< a preset, for configurations that say nothing about the model
  std::vector<std::string> sizes;      ///< "layers=12": replaces a size of the model
  std::vector<std::string> options;    ///< "NAME=VALUE": of the framework's schedule, in place of what it is
  std::vector<std::string> variables;  ///< "NAME=VALUE": for launch scripts
  bool ignore_unknown = false;         ///< a key that nobody knows is listed, and no error
};

/// A key of the configuration, as written there, and what became of it.
struct ImportedKey {
  std::string key;
  std::string value;  ///< of a number or boolean; "" for everything else, which may be a secret
  std::string meaning;
};

/// A key of the configuration, or an option of the request, that a value of the scenario stems from.
struct ImportedOrigin {
  std::string pointer;  ///< of the value: "/layout/tp"
  std::string key;      ///< as written: "--tensor-model-parallel-size"
  std::string number;   ///< the key's value where it is a number, else ""
  Place place;          ///< of the key's value, in a redacted source; none for an option of the request
};

/// A configuration as a scenario that expects to be right, so that it is a test as it stands. Nothing in it stems from
/// a value that the tables of src/importers do not know: numbers, booleans and known words pass, all other text stays
/// behind.
struct Imported {
  Json scenario;                     ///< made by the program: its values have no places
  std::vector<ImportedKey> used;     ///< keys that shaped the scenario, in the order of the configuration
  std::vector<ImportedKey> ignored;  ///< keys that do not matter for gradients, and why
  /// Keys of a part of the model that no preset has, where the request names a model in its place.
  std::vector<std::string> not_judged;
  std::vector<std::string> unknown;  ///< keys that nobody knows; only with ignore_unknown
  std::vector<std::string> assumed;  ///< what the configuration does not say, in sentences
  std::string release;               ///< which release's schedule the scenario has: "DeepSpeed 0.19.8"
  std::vector<ImportedOrigin> origins;
};

/// Turns a configuration into a scenario. Nothing of it is executed. Throws InputError with every mistake that was
/// found: wrong values, keys that nobody knows, options whose schedule lockstep cannot describe. The lines that its
/// diagnostics show have stars in place of every text that may be a secret.
Imported import_configuration(const ImportRequest& request);

/// The scenario, read; `name` is what reports call it. Throws InputError where its framework or model refuses it: with
/// the keys of the configuration that it stems from, at their places, and a mistake that many parameters share once.
Scenario read_imported(const Imported& imported, const std::string& name);

}  // namespace lockstep
