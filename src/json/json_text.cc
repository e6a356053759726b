// SPDX-License-Identifier: Apache-2.0
#include "json/json_text.h"

#include <algorithm>
#include <cstdlib>
#include <utility>
#include <vector>

namespace longspec {
namespace {

using Json = nlohmann::ordered_json;
using Event = Json::parse_event_t;

class Reader final : public nlohmann::json_sax<Json> {
 public:
  explicit Reader(const JsonWatch& watch) : watch_(watch) {}

  Json& root() { return root_; }
  const JsonMistake& mistake() const { return mistake_; }

  bool null() override { return Put(nullptr); }
  bool boolean(bool value) override { return Put(value); }
  bool number_integer(number_integer_t value) override { return Put(value); }
  bool number_unsigned(number_unsigned_t value) override { return Put(value); }
  bool number_float(number_float_t value, const string_t& text) override {
    if (text.find_first_not_of("-0123456789") != std::string::npos) return Put(value);
    return Put(Json::binary({text.begin(), text.end()}));
  }
  bool string(string_t& value) override { return Put(std::move(value)); }
  bool binary(binary_t& /*value*/) override { return false; }
  bool start_object(size_t /*n*/) override { return Open(Event::object_start, Json::object()); }
  bool key(string_t& name) override {
    Tell(Event::key);
    member_ = &(*open_.back())[std::move(name)];
    return true;
  }
  bool end_object() override { return Close(Event::object_end); }
  bool start_array(size_t /*n*/) override { return Open(Event::array_start, Json::array()); }
  bool end_array() override { return Close(Event::array_end); }
  bool parse_error(size_t position, const std::string& /*token*/,
                   const nlohmann::detail::exception& error) override {
    constexpr int kOutOfRange = 406;  // by nlohmann's documentation
    mistake_ = {.byte = position, .number_out_of_range = error.id == kOutOfRange};
    return false;
  }

 private:
  void Tell(Event event) const {
    if (watch_) watch_(static_cast<int>(open_.size()), event);
  }

  bool Put(Json value) {
    *Place() = std::move(value);
    return true;
  }

  bool Open(Event event, Json container) {
    Json* const place = Place();
    *place = std::move(container);
    open_.push_back(place);
    Tell(event);
    return true;
  }

  bool Close(Event event) {
    Tell(event);
    open_.pop_back();
    return true;
  }

  // Of the value that comes next. Those of open containers stay where they are: nothing comes after them yet.
  Json* Place() {
    if (open_.empty()) return &root_;
    if (open_.back()->is_object()) return member_;
    open_.back()->push_back(nullptr);
    return &open_.back()->back();
  }

  const JsonWatch& watch_;
  Json root_;
  std::vector<Json*> open_;
  Json* member_ = nullptr;  // whose key was read
  JsonMistake mistake_;
};

bool HasLongInteger(const Json& json) {
  return json.is_structured() ? std::ranges::any_of(json, HasLongInteger) : json.is_binary();
}

std::string Digits(const Json& long_integer) {
  const auto& bytes = long_integer.get_binary();
  return {bytes.begin(), bytes.end()};
}

void Write(const Json& json, std::string* text) {
  if (json.is_binary()) {
    *text += Digits(json);
  } else if (!json.is_structured()) {
    *text += json.dump(-1, ' ', false, Json::error_handler_t::replace);
  } else if (json.is_array()) {
    *text += '[';
    for (const Json& element : json) {
      if (&element != &json.front()) *text += ',';
      Write(element, text);
    }
    *text += ']';
  } else {
    char before = '{';
    for (const auto& [key, value] : json.items()) {
      *text += std::exchange(before, ',');
      Write(key, text);
      *text += ':';
      Write(value, text);
    }
    *text += json.empty() ? "{}" : "}";
  }
}

}  // namespace

std::variant<Json, JsonMistake> ReadJson(std::string_view text, const JsonWatch& watch) {
  Reader reader(watch);
  if (!Json::sax_parse(text, &reader)) return reader.mistake();
  return std::move(reader.root());
}

std::string WriteJson(const Json& json) {
  if (!HasLongInteger(json)) return json.dump(-1, ' ', false, Json::error_handler_t::replace);
  std::string text;
  Write(json, &text);
  return text;
}

Json LoadJson(std::string_view text) { return std::get<Json>(ReadJson(text)); }

bool IsLongInteger(const Json& value) { return value.is_binary(); }

std::optional<double> NumberOf(const Json& value) {
  if (value.is_number()) return value.get<double>();
  if (!IsLongInteger(value)) return std::nullopt;
  return std::strtod(Digits(value).c_str(), nullptr);
}

}  // namespace longspec
