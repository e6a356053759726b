// SPDX-License-Identifier: Apache-2.0
#include "openai/next_edit.h"

#include <array>
#include <cstddef>

namespace longspec::openai {
namespace {

// A region stands behind the last `begin`, and the line that it ends, up to `end`.
struct RegionForm {
  std::string_view begin, end;
  std::string_view last = {};  // what the prompt ends with, but for one line behind it; empty: anything
  bool has_path = false;       // `begin` and `last` are followed by a path
  bool repeats_marks = false;  // the answer has `begin` and `end`, too
};

constexpr RegionForm kRegionForms[] = {
    {.begin = "<|file_sep|>current/",
     .end = "<|file_sep|>",
     .last = "<|file_sep|>updated/",
     .has_path = true},
    {.begin = "<|editable_region_start|>", .end = "<|editable_region_end|>", .repeats_marks = true},
    {.begin = "<|fim_middle|>current", .end = "<|fim_", .last = "<|fim_middle|>updated"},
    {.begin = "<<<<<<< CURRENT", .end = "=======\n", .last = "<[fim-middle]>"},
};

// Where the editor's cursor is, which no answer says.
constexpr std::array<std::string_view, 3> kCursors = {"<|user_cursor_is_here|>", "<|user_cursor|>",
                                                      "<|cursor|>"};

std::string WithoutCursor(std::string_view region) {
  std::string text(region);
  for (const std::string_view cursor : kCursors) {
    if (const size_t at = text.find(cursor); at != std::string::npos) text.erase(at, cursor.size());
  }
  return text;
}

bool EndsAs(std::string_view prompt, const RegionForm& form) {
  if (form.last.empty()) return true;
  const size_t at = prompt.rfind(form.last);
  if (at == std::string_view::npos) return false;
  const std::string_view rest = prompt.substr(at + form.last.size());
  const size_t line_end = rest.find('\n');
  return line_end == std::string_view::npos ? form.has_path || rest.empty()
                                            : line_end + 1 == rest.size() && (form.has_path || line_end == 0);
}

std::optional<std::string> RegionIn(std::string_view prompt, const RegionForm& form) {
  if (!EndsAs(prompt, form)) return std::nullopt;
  const size_t mark = prompt.rfind(form.begin);
  if (mark == std::string_view::npos) return std::nullopt;
  const size_t line_end = prompt.find('\n', mark + form.begin.size());
  if (line_end == std::string_view::npos) return std::nullopt;
  if (!form.has_path && line_end != mark + form.begin.size()) return std::nullopt;
  const size_t end = prompt.find(form.end, line_end);
  if (end == std::string_view::npos) return std::nullopt;
  if (form.repeats_marks) return WithoutCursor(prompt.substr(mark, end + form.end.size() - mark));
  return WithoutCursor(prompt.substr(line_end + 1, end - line_end - 1));
}

}  // namespace

std::optional<std::string> UneditedRegion(std::string_view prompt) {
  for (const RegionForm& form : kRegionForms) {
    if (auto region = RegionIn(prompt, form); region && !region->empty()) return region;
  }
  return std::nullopt;
}

}  // namespace longspec::openai
