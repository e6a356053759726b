// SPDX-License-Identifier: Apache-2.0
#include "cli/arguments.h"

#include <algorithm>
#include <cctype>
#include <optional>
#include <string_view>
#include <utility>

#include "base/status_macros.h"
#include "cli/foreign_options.h"

namespace longspec::cli {
namespace {

using Treatment = ForeignOption::Treatment;
using Values = ForeignOption::Values;

// "-abc" or "-a-b": letters after a single dash. "-n128", "-n-1" and "-m./file" are short options with their
// values.
bool IsUnknownSingleDash(std::string_view name) {
  return name.size() > 2 && name[0] == '-' && name[1] != '-' &&
         std::all_of(name.begin() + 1, name.end(),
                     [](char c) { return c == '-' || std::isalpha(static_cast<unsigned char>(c)) != 0; });
}

// "-ngl, -fa and --mlock have no effect here"
std::string NoEffectWarning(const std::vector<std::string>& names) {
  std::string text = names.front();
  for (size_t i = 1; i < names.size(); ++i) text += (i + 1 < names.size() ? ", " : " and ") + names[i];
  return text + (names.size() > 1 ? " have no effect here" : " has no effect here");
}

class Normalizer {
 public:
  Normalizer(std::vector<std::string> args, const std::function<OptionKind(const std::string&)>& kind_of)
      : args_(std::move(args)), kind_of_(kind_of) {}

  Result<NormalizedArguments> Run() {
    while (at_ < args_.size()) LS_TRY(Next());
    if (!without_effect_.empty()) out_.warnings.push_back(NoEffectWarning(without_effect_));
    return std::move(out_);
  }

 private:
  Status Next() {
    const std::string& arg = args_[at_++];
    if (arg.size() < 2 || arg[0] != '-') {
      out_.args.push_back(arg);
      return {};
    }
    const size_t equals = arg.find('=');
    const std::string name = arg.substr(0, equals);
    attached_.reset();
    if (equals != std::string::npos) attached_ = arg.substr(equals + 1);
    if (kind_of_(name) == OptionKind::kUnknown) {
      if (const ForeignOption* foreign = FindForeign(name); foreign != nullptr) return Take(*foreign, name);
      if (IsUnknownSingleDash(name)) return InvalidArgument("unknown option " + name);
    }
    Push(name);
    return {};
  }

  const ForeignOption* FindForeign(std::string_view name) const {
    const auto known = [this](std::string_view option) {
      return kind_of_(std::string(option)) != OptionKind::kUnknown;
    };
    for (const ForeignOption& foreign : ForeignOptions()) {
      if (!foreign.Has(name) || (!foreign.needs.empty() && !known(foreign.needs))) continue;
      if (foreign.needs.empty() && !known(foreign.options[0])) continue;
      return &foreign;
    }
    return nullptr;
  }

  // An option as the command knows it, with its value if it takes one.
  void Push(const std::string& option) {
    const bool valued = kind_of_(option) == OptionKind::kValued;
    if (!attached_) {
      out_.args.push_back(option);
      if (valued && at_ < args_.size()) out_.args.push_back(args_[at_++]);
    } else if (valued && attached_->empty() && option.starts_with("--")) {
      // CLI11 would take the next argument for a value that is attached and empty.
      out_.args.push_back(option);
      out_.args.emplace_back();
    } else {
      out_.args.push_back(option + "=" + *attached_);
    }
  }

  // What follows a foreign option; nothing: it has no value.
  std::optional<std::string> TakeValue(Values values) {
    std::optional<std::string> value = std::exchange(attached_, std::nullopt);
    const auto take = [&] { return at_ < args_.size() ? args_[at_++] : std::string(); };
    if (!value && (values == Values::kOne || values == Values::kTwo)) value = take();
    if (!value && values == Values::kSwitch && at_ < args_.size() && IsSwitch(args_[at_])) value = take();
    if (values == Values::kTwo) take();
    return value;
  }

  Status Take(const ForeignOption& foreign, const std::string& name) {
    switch (foreign.treatment) {
      case Treatment::kRenamed:
        out_.warnings.push_back(name + " is called " + std::string(foreign.options[0]) + " here");
        [[fallthrough]];
      case Treatment::kSpelling:
        Push(std::string(foreign.options[0]));
        return {};
      case Treatment::kSets:
        out_.warnings.push_back(name + " " + std::string(foreign.text));
        Set(foreign);
        return {};
      case Treatment::kNoEffect:
        TakeValue(foreign.values);
        return WithoutEffect(name);
      case Treatment::kRefused:
        const auto value = TakeValue(foreign.values);
        if (value && foreign.IsHarmless(*value)) return WithoutEffect(name);
        return InvalidArgument(name + (foreign.harmless.empty() || !value ? "" : " " + *value) + ": " +
                               std::string(foreign.text));
    }
    return {};
  }

  void Set(const ForeignOption& foreign) {
    const auto value = TakeValue(foreign.values);
    for (const std::string_view option : foreign.options) {
      if (option.empty()) continue;
      attached_ = value;
      if (option.find('=') != std::string_view::npos) {
        out_.args.emplace_back(option);
      } else {
        Push(std::string(option));
      }
    }
  }

  Status WithoutEffect(const std::string& name) {
    if (std::ranges::find(without_effect_, name) == without_effect_.end()) without_effect_.push_back(name);
    return {};
  }

  const std::vector<std::string> args_;
  const std::function<OptionKind(const std::string&)>& kind_of_;
  size_t at_ = 0;                        // the next argument
  std::optional<std::string> attached_;  // the value after '=' of the one before
  std::vector<std::string> without_effect_;
  NormalizedArguments out_;
};

}  // namespace

Result<NormalizedArguments> NormalizeArguments(std::vector<std::string> args,
                                               const std::function<OptionKind(const std::string&)>& kind_of) {
  return Normalizer(std::move(args), kind_of).Run();
}

}  // namespace longspec::cli
