// SPDX-License-Identifier: Apache-2.0
#include "formats/gguf_parser.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <memory>
#include <string_view>
#include <unordered_set>

#include "base/status_macros.h"
#include "formats/gguf_format.h"

namespace longspec {
namespace {

static_assert(std::endian::native == std::endian::little, "GGUF is read as the machine stores it");

constexpr int kMaxArrayDepth = 8;
constexpr uint64_t kMinEntryBytes = 8 + 4 + 1;           // key length, type, the smallest value
constexpr uint64_t kMinTensorBytes = 8 + 4 + 8 + 4 + 8;  // name length, n_dims, one dim, type, offset

// Fewest bytes that a value of this type takes; 0 for a type number that does not exist.
uint64_t MinBytes(GgufType type) {
  switch (type) {
    case GgufType::kUint8:
    case GgufType::kInt8:
    case GgufType::kBool:
      return 1;
    case GgufType::kUint16:
    case GgufType::kInt16:
      return 2;
    case GgufType::kUint32:
    case GgufType::kInt32:
    case GgufType::kFloat32:
      return 4;
    case GgufType::kUint64:
    case GgufType::kInt64:
    case GgufType::kFloat64:
    case GgufType::kString:
      return 8;
    case GgufType::kArray:
      return 12;
  }
  return 0;
}

class Parser {
 public:
  Parser(std::span<const std::byte> bytes, const std::string& name) : bytes_(bytes), name_(name) {}

  Result<GgufContents> Parse() {
    contents_.n_bytes = bytes_.size();
    uint64_t n_tensors = 0, n_entries = 0;
    LS_TRY(ReadPreamble(&n_tensors, &n_entries));
    LS_TRY(ReadMetadata(n_entries));
    LS_TRY(ReadTensorInfos(n_tensors));
    LS_TRY(PlaceTensors());
    return std::move(contents_);
  }

 private:
  Status Bad(const std::string& what) const { return Corrupt(name_ + ": " + what); }

  uint64_t remaining() const { return bytes_.size() - position_; }

  Status Need(uint64_t n) const {
    if (n <= remaining()) return {};
    const bool overflow = n > std::numeric_limits<uint64_t>::max() - position_;
    const std::string expected = overflow ? "more than 2^64" : std::to_string(position_ + n);
    return Bad("truncated in " + where_ + ": at least " + expected + " bytes expected, " +
               std::to_string(bytes_.size()) + " present");
  }

  template <typename T>
  Status Read(T* value) {
    LS_TRY(Need(sizeof *value));
    std::memcpy(value, bytes_.data() + position_, sizeof *value);
    position_ += sizeof *value;
    return {};
  }

  Status ReadString(std::string_view* text) {
    uint64_t n;
    LS_TRY(Read(&n));
    LS_TRY(Need(n));
    *text = {reinterpret_cast<const char*>(bytes_.data()) + position_, static_cast<size_t>(n)};
    position_ += n;
    return {};
  }

  // Refuses a count whose items cannot all be in the file, before anything is allocated for them.
  Status CheckCount(uint64_t count, uint64_t min_bytes, const char* items) const {
    if (count <= remaining() / min_bytes) return {};
    return Bad(std::to_string(count) + " " + items + " in " + where_ + " do not fit in the remaining " +
               std::to_string(remaining()) + " bytes: truncated or corrupt");
  }

  Status ReadPreamble(uint64_t* n_tensors, uint64_t* n_entries);
  Status CheckVersion(uint32_t version) const;
  Status ReadMetadata(uint64_t n);
  Status ReadValue(GgufType type, int depth, GgufValue* value);
  Status ReadArray(int depth, GgufArray* array);
  Status ReadTensorInfos(uint64_t n);
  Status ReadShape(TensorView* tensor);
  Status ReadType(TensorView* tensor);
  Status CheckSize(TensorView* tensor);
  Status ReadAlignment(uint64_t* alignment) const;
  Status PlaceTensors();
  Status CheckOverlaps() const;

  template <typename Stored, typename Wide>
  Status ReadScalar(GgufValue* value) {
    Stored stored{};
    LS_TRY(Read(&stored));
    *value = static_cast<Wide>(stored);
    return {};
  }

  template <typename Stored, typename Wide>
  Status ReadScalars(uint64_t n, GgufArray* array) {
    std::vector<Wide> values(n);
    for (Wide& value : values) {
      Stored stored{};
      LS_TRY(Read(&stored));
      value = static_cast<Wide>(stored);
    }
    array->values = std::move(values);
    return {};
  }

  Status ReadBool(bool* value) {
    uint8_t stored = 0;
    LS_TRY(Read(&stored));
    if (stored > 1) return Bad(where_ + ": a bool of value " + std::to_string(stored) + ", expected 0 or 1");
    *value = stored != 0;
    return {};
  }

  Status ReadBools(uint64_t n, GgufArray* array);
  Status ReadStrings(uint64_t n, GgufArray* array);
  Status ReadArrays(uint64_t n, int depth, GgufArray* array);

  std::span<const std::byte> bytes_;
  const std::string& name_;
  uint64_t position_ = 0;
  std::string where_ = "the header";  // what is being read, for messages
  GgufContents contents_;
  std::vector<uint64_t> offsets_;  // of each tensor, relative to the data section
};

Status Parser::CheckVersion(uint32_t version) const {
  if (version == 2 || version == 3) return {};
  const std::string number = std::to_string(version);
  if (version != 0 && (version & 0xFFFF) == 0) {
    return Unsupported(name_ + ": a big-endian GGUF file; convert it to little-endian");
  }
  if (version == 1) return Unsupported(name_ + ": GGUF version 1 is not supported; convert it to version 3");
  return Unsupported(name_ + ": GGUF version " + number + " is not supported; expected 2 or 3");
}

Status Parser::ReadPreamble(uint64_t* n_tensors, uint64_t* n_entries) {
  uint32_t magic = 0, version = 0;
  LS_TRY(Read(&magic));
  if (magic != kGgufMagic) return Bad("not a GGUF file: it does not begin with the bytes 'GGUF'");
  LS_TRY(Read(&version));
  LS_TRY(CheckVersion(version));
  contents_.version = version;
  LS_TRY(Read(n_tensors));
  LS_TRY(Read(n_entries));
  LS_TRY(CheckCount(*n_tensors, kMinTensorBytes, "tensors"));
  return CheckCount(*n_entries, kMinEntryBytes, "metadata entries");
}

Status Parser::ReadMetadata(uint64_t n) {
  std::unordered_set<std::string_view> seen;
  contents_.metadata.reserve(n);
  for (uint64_t i = 0; i < n; ++i) {
    where_ = "metadata entry " + std::to_string(i);
    std::string_view key;
    uint32_t type;
    LS_TRY(ReadString(&key));
    if (key.empty()) return Bad(where_ + " has an empty key");
    where_ = "metadata key " + Quote(key);
    if (!seen.insert(key).second) return Bad(where_ + " appears twice");
    LS_TRY(Read(&type));
    GgufValue value;
    LS_TRY(ReadValue(static_cast<GgufType>(type), 0, &value));
    contents_.metadata.emplace_back(key, std::move(value));
  }
  return {};
}

Status Parser::ReadValue(GgufType type, int depth, GgufValue* value) {
  switch (type) {
    case GgufType::kUint8:
      return ReadScalar<uint8_t, uint64_t>(value);
    case GgufType::kInt8:
      return ReadScalar<int8_t, int64_t>(value);
    case GgufType::kUint16:
      return ReadScalar<uint16_t, uint64_t>(value);
    case GgufType::kInt16:
      return ReadScalar<int16_t, int64_t>(value);
    case GgufType::kUint32:
      return ReadScalar<uint32_t, uint64_t>(value);
    case GgufType::kInt32:
      return ReadScalar<int32_t, int64_t>(value);
    case GgufType::kUint64:
      return ReadScalar<uint64_t, uint64_t>(value);
    case GgufType::kInt64:
      return ReadScalar<int64_t, int64_t>(value);
    case GgufType::kFloat32:
      return ReadScalar<float, double>(value);
    case GgufType::kFloat64:
      return ReadScalar<double, double>(value);
    case GgufType::kBool:
      return ReadBool(&value->emplace<bool>());
    case GgufType::kString: {
      std::string_view text;
      LS_TRY(ReadString(&text));
      value->emplace<std::string>(text);
      return {};
    }
    case GgufType::kArray: {
      auto array = std::make_shared<GgufArray>();
      LS_TRY(ReadArray(depth + 1, array.get()));
      *value = std::shared_ptr<const GgufArray>(std::move(array));
      return {};
    }
  }
  return Bad(where_ + " has unknown value type " + std::to_string(static_cast<uint32_t>(type)));
}

Status Parser::ReadArray(int depth, GgufArray* array) {
  if (depth > kMaxArrayDepth) {
    return Bad(where_ + ": arrays nested more than " + std::to_string(kMaxArrayDepth) + " deep");
  }
  uint32_t number;
  uint64_t n;
  LS_TRY(Read(&number));
  LS_TRY(Read(&n));
  const auto type = static_cast<GgufType>(number);
  if (MinBytes(type) == 0) return Bad(where_ + " is an array of unknown type " + std::to_string(number));
  LS_TRY(CheckCount(n, MinBytes(type), "array elements"));
  switch (type) {
    case GgufType::kUint8:
      return ReadScalars<uint8_t, uint64_t>(n, array);
    case GgufType::kInt8:
      return ReadScalars<int8_t, int64_t>(n, array);
    case GgufType::kUint16:
      return ReadScalars<uint16_t, uint64_t>(n, array);
    case GgufType::kInt16:
      return ReadScalars<int16_t, int64_t>(n, array);
    case GgufType::kUint32:
      return ReadScalars<uint32_t, uint64_t>(n, array);
    case GgufType::kInt32:
      return ReadScalars<int32_t, int64_t>(n, array);
    case GgufType::kUint64:
      return ReadScalars<uint64_t, uint64_t>(n, array);
    case GgufType::kInt64:
      return ReadScalars<int64_t, int64_t>(n, array);
    case GgufType::kFloat32:
      return ReadScalars<float, double>(n, array);
    case GgufType::kFloat64:
      return ReadScalars<double, double>(n, array);
    case GgufType::kBool:
      return ReadBools(n, array);
    case GgufType::kString:
      return ReadStrings(n, array);
    case GgufType::kArray:
      return ReadArrays(n, depth, array);
  }
  return {};
}

Status Parser::ReadBools(uint64_t n, GgufArray* array) {
  std::vector<bool> values;
  values.reserve(n);
  for (uint64_t i = 0; i < n; ++i) {
    bool value = false;
    LS_TRY(ReadBool(&value));
    values.push_back(value);
  }
  array->values = std::move(values);
  return {};
}

Status Parser::ReadStrings(uint64_t n, GgufArray* array) {
  std::vector<std::string> values;
  values.reserve(n);
  for (uint64_t i = 0; i < n; ++i) {
    std::string_view text;
    LS_TRY(ReadString(&text));
    values.emplace_back(text);
  }
  array->values = std::move(values);
  return {};
}

Status Parser::ReadArrays(uint64_t n, int depth, GgufArray* array) {
  std::vector<GgufValue> values(n);
  for (GgufValue& value : values) LS_TRY(ReadValue(GgufType::kArray, depth, &value));
  array->values = std::move(values);
  return {};
}

Status Parser::ReadTensorInfos(uint64_t n) {
  where_ = "the tensor table";
  LS_TRY(CheckCount(n, kMinTensorBytes, "tensors"));
  contents_.tensors.resize(n);
  offsets_.resize(n);
  for (uint64_t i = 0; i < n; ++i) {
    where_ = "tensor " + std::to_string(i);
    TensorView& tensor = contents_.tensors[i];
    std::string_view name;
    LS_TRY(ReadString(&name));
    if (name.empty() || name.size() > kGgufMaxTensorName) {
      return Bad(where_ + " has a name of " + std::to_string(name.size()) + " bytes, expected 1 to " +
                 std::to_string(kGgufMaxTensorName));
    }
    where_ = "tensor " + Quote(name);
    tensor.name = name;
    LS_TRY(ReadShape(&tensor));
    LS_TRY(ReadType(&tensor));
    LS_TRY(CheckSize(&tensor));
    LS_TRY(Read(&offsets_[i]));
  }
  return {};
}

Status Parser::ReadShape(TensorView* tensor) {
  uint32_t n_dims;
  LS_TRY(Read(&n_dims));
  if (n_dims < 1 || n_dims > 4) {
    return Bad(where_ + " has " + std::to_string(n_dims) + " dimensions, expected 1 to 4");
  }
  tensor->n_dims = static_cast<int>(n_dims);
  for (uint32_t i = 0; i < n_dims; ++i) {
    LS_TRY(Read(&tensor->shape[i]));
    if (tensor->shape[i] <= 0) return Bad(where_ + ": dimension " + std::to_string(i) + " is not positive");
  }
  return {};
}

Status Parser::ReadType(TensorView* tensor) {
  uint32_t number = 0;
  LS_TRY(Read(&number));
  if (const std::optional<DType> type = FindGgufType(number)) {
    tensor->dtype = *type;
    return {};
  }
  const std::string_view name = OtherGgufType(number);
  if (name.empty()) return Bad(where_ + " has unknown type number " + std::to_string(number));
  return Unsupported(name_ + ": " + where_ + " has type " + std::string(name) + ", which is not supported");
}

Status Parser::CheckSize(TensorView* tensor) {
  const WeightTypeInfo& info = Info(tensor->dtype);
  if (tensor->shape[0] % info.block_elements != 0) {
    return Bad(where_ + " has rows of " + std::to_string(tensor->shape[0]) +
               " elements, expected a multiple of " + std::to_string(info.block_elements) + " for " +
               std::string(info.name));
  }
  int64_t n_elements = 1, n_bytes = 0;
  bool overflow = false;
  for (const int64_t dim : tensor->shape) overflow |= __builtin_mul_overflow(n_elements, dim, &n_elements);
  overflow = overflow || __builtin_mul_overflow(n_elements / info.block_elements, info.block_bytes, &n_bytes);
  if (overflow) return Bad(where_ + ": the product of its dimensions overflows");
  tensor->n_bytes = static_cast<size_t>(n_bytes);
  return {};
}

Status Parser::ReadAlignment(uint64_t* alignment) const {
  const auto entry =
      std::ranges::find(contents_.metadata, kGgufAlignmentKey, &std::pair<std::string, GgufValue>::first);
  *alignment = kGgufDefaultAlignment;
  if (entry == contents_.metadata.end()) return {};
  const auto* value = std::get_if<uint64_t>(&entry->second);
  if (value == nullptr || !std::has_single_bit(*value) || *value < kGgufMinAlignment ||
      *value > kGgufMaxAlignment) {
    return Bad("metadata key 'general.alignment' must be a power of two from " +
               std::to_string(kGgufMinAlignment) + " to " + std::to_string(kGgufMaxAlignment));
  }
  *alignment = *value;
  return {};
}

// Turns offsets into addresses once all of them are known to lie in the file.
Status Parser::PlaceTensors() {
  uint64_t alignment;
  LS_TRY(ReadAlignment(&alignment));
  const uint64_t data_start = (position_ + alignment - 1) / alignment * alignment;
  uint64_t data_end = 0;
  const TensorView* last = nullptr;
  for (size_t i = 0; i < offsets_.size(); ++i) {
    const TensorView& tensor = contents_.tensors[i];
    if (offsets_[i] % alignment != 0) {
      return Bad("tensor " + Quote(tensor.name) + " lies at offset " + std::to_string(offsets_[i]) +
                 ", expected a multiple of " + std::to_string(alignment));
    }
    uint64_t end = 0;
    if (__builtin_add_overflow(offsets_[i], data_start + tensor.n_bytes, &end)) {
      return Bad("tensor " + Quote(tensor.name) + " lies at offset " + std::to_string(offsets_[i]) +
                 ", far outside the file");
    }
    if (end > data_end) {
      data_end = end;
      last = &tensor;
    }
  }
  if (last != nullptr && data_end > bytes_.size()) {
    return Bad("truncated: " + std::to_string(data_end) + " bytes expected (the end of tensor " +
               Quote(last->name) + "), " + std::to_string(bytes_.size()) + " present");
  }
  for (size_t i = 0; i < offsets_.size(); ++i) {
    contents_.tensors[i].data = bytes_.data() + data_start + offsets_[i];
  }
  return CheckOverlaps();
}

Status Parser::CheckOverlaps() const {
  std::vector<const TensorView*> order;
  for (const TensorView& tensor : contents_.tensors) order.push_back(&tensor);
  std::ranges::sort(order, {}, &TensorView::data);
  for (size_t i = 1; i < order.size(); ++i) {
    const TensorView& a = *order[i - 1];
    const TensorView& b = *order[i];
    if (a.data + a.n_bytes > b.data)
      return Bad("tensors " + Quote(a.name) + " and " + Quote(b.name) + " overlap");
  }
  return {};
}

}  // namespace

Result<GgufContents> ParseGguf(std::span<const std::byte> bytes, const std::string& name) {
  return Parser(bytes, name).Parse();
}

}  // namespace longspec
