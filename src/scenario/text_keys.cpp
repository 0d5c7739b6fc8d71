// SPDX-License-Identifier: Apache-2.0
#include "src/scenario/text_keys.h"

#include <optional>

#include "src/scenario/key_table.h"
#include "src/scenario/named_file.h"

namespace lockstep::scenario {

namespace {

/// The object that a key holds, or a list of which it holds.
std::optional<Object> object_of(Type type) {
  switch (type) {
    case Type::layout:
      return Object::layout;
    case Type::model:
      return Object::model;
    case Type::batch:
      return Object::batch;
    case Type::schedule:
      return Object::schedule;
    case Type::geometry:
      return Object::geometry;
    case Type::parameters:
      return Object::parameter;
    case Type::step:
    case Type::steps:
      return Object::step;
    case Type::edits:
      return Object::edit;
    case Type::model_edits:
      return Object::model_edit;
    default:
      return std::nullopt;
  }
}

bool is_text(Type type) {
  return type == Type::text || type == Type::name || type == Type::identifier || type == Type::step_name;
}

const Json* reference_in(const Json& document, const char* part, const char* key) {
  const Json* written = document.find(part);
  const Json* reference = written == nullptr ? nullptr : written->find(key);
  return reference == nullptr || !reference->is_string() ? nullptr : reference;
}

bool is_text_option(const Json& document, const std::filesystem::path& folder, const std::string& name) {
  const Json* reference = reference_in(document, "schedule", "framework");
  if (reference == nullptr) return false;
  Diagnostics ignored;  // whoever reads the scenario tells them
  const std::optional<NamedFile> file = load_named_file(*reference, FileKind::framework, folder, folder, ignored);
  const Json* options = file ? file->document.find("options") : nullptr;
  const Json* option = options == nullptr ? nullptr : options->find(name);
  const Json* type = option == nullptr ? nullptr : option->find("type");
  return type != nullptr && type->is_string() && type->text() == "string";
}

/// A size has the type of its default, which stands in the model's file or in the one that this stands on.
bool is_text_size(const Json& document, const std::filesystem::path& folder, const std::string& name) {
  const Json* preset = reference_in(document, "model", "preset");
  if (preset == nullptr) return false;
  Json reference = *preset;
  std::filesystem::path of_reference = folder;
  constexpr int most_bases = 8;
  for (int depth = 0; depth <= most_bases; ++depth) {
    Diagnostics ignored;
    const std::optional<NamedFile> file = load_named_file(reference, FileKind::model, of_reference, folder, ignored);
    if (!file) return false;
    const Json* sizes = file->document.find("sizes");
    const Json* size = sizes == nullptr ? nullptr : sizes->find(name);
    // One without a default is that of the base with another value.
    const Json* value = size != nullptr && size->is_object() ? size->find("default") : nullptr;
    if (value != nullptr) return value->is_string();
    const Json* base = file->document.find("base");
    if (base == nullptr || !base->is_string()) return false;
    reference = *base;
    of_reference = file->folder;
  }
  return false;
}

}  // namespace

bool holds_text(const Json& document, const std::filesystem::path& folder, const std::vector<std::string>& path) {
  const ObjectRow* row = &object_row(Object::scenario);
  for (std::size_t depth = 0; depth < path.size(); ++depth) {
    const std::string& part = path[depth];
    const bool is_last = depth + 1 == path.size();
    if (part.find_first_not_of("0123456789") == std::string::npos) continue;  // an element of a list
    const ObjectKey* key = find_key(*row, part);
    if (key == nullptr) return is_last && row->object == Object::model && is_text_size(document, folder, part);
    if (is_last) return is_text(key->type);
    if (row->object == Object::schedule && key->type == Type::options)
      return depth + 2 == path.size() && is_text_option(document, folder, path.back());
    const std::optional<Object> inner = object_of(key->type);
    if (!inner) return false;
    row = &object_row(*inner);
  }
  return false;
}

}  // namespace lockstep::scenario
