// SPDX-License-Identifier: Apache-2.0
#include "formats/gguf.h"

#include <cstring>
#include <new>
#include <optional>
#include <unordered_map>

#include "base/mapped_file.h"
#include "base/status_macros.h"
#include "formats/gguf_format.h"
#include "formats/gguf_parser.h"
#include "formats/gguf_shards.h"

namespace longspec {
namespace {

class GgufModel final : public GgufFile {
 public:
  explicit GgufModel(std::string path) : path_(std::move(path)) {}

  const std::string& path() const override { return path_; }
  uint32_t version() const override { return version_; }
  uint64_t file_bytes() const override { return file_bytes_; }
  const std::vector<GgufShard>& shards() const override { return shards_; }
  const std::vector<std::pair<std::string, GgufValue>>& metadata() const override { return metadata_; }
  const std::vector<TensorView>& tensors() const override { return tensors_; }

  const GgufValue* Find(std::string_view key) const override {
    const auto it = key_index_.find(key);
    return it == key_index_.end() ? nullptr : &metadata_[it->second].second;
  }
  const TensorView* FindTensor(std::string_view name) const override {
    const auto it = tensor_index_.find(name);
    return it == tensor_index_.end() ? nullptr : &tensors_[it->second];
  }

  // Keeps a shard's bytes alive as long as the views into them.
  void Own(MappedFile file) {
    Borrow({.bytes = file.bytes(), .identity = file.identity()});
    files_.push_back(std::move(file));
  }
  void Borrow(const GgufShard& shard) { shards_.push_back(shard); }

  void AddFirst(GgufContents contents) {
    version_ = contents.version;
    metadata_ = std::move(contents.metadata);
    for (size_t i = 0; i < metadata_.size(); ++i) key_index_.emplace(metadata_[i].first, i);
    AddTensors(&contents);
  }

  void AddTensors(GgufContents* contents) {
    file_bytes_ += contents->n_bytes;
    for (TensorView& tensor : contents->tensors) tensors_.push_back(std::move(tensor));
  }

  // To be called once, after the last AddTensors: the index refers to the names where they lie.
  Status IndexTensors() {
    for (size_t i = 0; i < tensors_.size(); ++i) {
      if (!tensor_index_.emplace(tensors_[i].name, i).second) {
        return Corrupt(path_ + ": tensor " + Quote(tensors_[i].name) + " appears twice");
      }
    }
    return {};
  }

 private:
  std::string path_;
  uint32_t version_ = 0;
  uint64_t file_bytes_ = 0;
  std::vector<MappedFile> files_;
  std::vector<GgufShard> shards_;
  std::vector<std::pair<std::string, GgufValue>> metadata_;
  std::vector<TensorView> tensors_;
  std::unordered_map<std::string_view, size_t> key_index_;
  std::unordered_map<std::string_view, size_t> tensor_index_;
};

// An integer among `contents`' metadata; nothing if the key is absent.
Result<std::optional<uint64_t>> FindCount(const GgufContents& contents, std::string_view key,
                                          const std::string& path) {
  for (const auto& [name, value] : contents.metadata) {
    if (name != key) continue;
    if (const auto* u = std::get_if<uint64_t>(&value)) return std::optional(*u);
    if (const auto* i = std::get_if<int64_t>(&value); i != nullptr && *i >= 0) {
      return std::optional(static_cast<uint64_t>(*i));
    }
    return Corrupt(path + ": metadata key '" + std::string(key) +
                   "' must be an integer that is not negative");
  }
  return std::optional<uint64_t>();
}

Status ExpectCount(const GgufContents& contents, std::string_view key, uint64_t expected,
                   const std::string& path) {
  LS_ASSIGN(const std::optional<uint64_t> found, FindCount(contents, key, path));
  if (!found || *found == expected) return {};
  return Corrupt(path + ": metadata key '" + std::string(key) + "' is " + std::to_string(*found) +
                 ", expected " + std::to_string(expected));
}

// A file whose name says nothing of shards must be whole.
Status ExpectWhole(const GgufContents& contents, const std::string& path) {
  LS_ASSIGN(const std::optional<uint64_t> count, FindCount(contents, "split.count", path));
  if (!count || *count <= 1) return {};
  return InvalidArgument(path + ": one of " + std::to_string(*count) +
                         " shards; name them as written ('<model>-00001-of-0000N.gguf') and open the first");
}

Result<std::shared_ptr<const GgufFile>> OpenSingle(const std::string& path, MappedFile file) {
  auto model = std::make_shared<GgufModel>(path);
  LS_ASSIGN(GgufContents contents, ParseGguf(file.bytes(), path));
  LS_TRY(ExpectWhole(contents, path));
  model->Own(std::move(file));
  model->AddFirst(std::move(contents));
  LS_TRY(model->IndexTensors());
  return std::shared_ptr<const GgufFile>(std::move(model));
}

Status CheckShardName(const ShardName& name, const std::string& path) {
  if (name.number < 1 || name.number > name.count) {
    return InvalidArgument(path + ": there is no shard " + std::to_string(name.number) + " of " +
                           std::to_string(name.count));
  }
  if (name.number == 1) return {};
  return InvalidArgument(path + ": shard " + std::to_string(name.number) + " of " +
                         std::to_string(name.count) + "; open the first, " +
                         FormatShardName({name.prefix, 1, name.count}));
}

Result<MappedFile> OpenShard(const std::string& path, const ShardName& name) {
  Result<MappedFile> file = MappedFile::Open(path);
  if (file.ok() || file.status().code() != StatusCode::kNotFound) return file;
  return NotFound(path + ": missing; it is shard " + std::to_string(name.number) + " of " +
                  std::to_string(name.count));
}

Result<std::shared_ptr<const GgufFile>> OpenShards(const std::string& first_path, ShardName name) {
  LS_TRY(CheckShardName(name, first_path));
  auto model = std::make_shared<GgufModel>(first_path);
  std::optional<uint64_t> n_tensors;
  for (; name.number <= name.count; ++name.number) {
    const std::string path = FormatShardName(name);
    LS_ASSIGN(MappedFile file, OpenShard(path, name));
    LS_ASSIGN(GgufContents contents, ParseGguf(file.bytes(), path));
    model->Own(std::move(file));
    LS_TRY(ExpectCount(contents, "split.count", static_cast<uint64_t>(name.count), path));
    LS_TRY(ExpectCount(contents, "split.no", static_cast<uint64_t>(name.number - 1), path));
    if (name.number == 1) {
      LS_ASSIGN(n_tensors, FindCount(contents, "split.tensors.count", path));
      model->AddFirst(std::move(contents));
    } else {
      model->AddTensors(&contents);
    }
  }
  if (n_tensors && *n_tensors != model->tensors().size()) {
    return Corrupt(first_path + ": metadata key 'split.tensors.count' is " + std::to_string(*n_tensors) +
                   ", but the shards have " + std::to_string(model->tensors().size()) + " tensors");
  }
  LS_TRY(model->IndexTensors());
  return std::shared_ptr<const GgufFile>(std::move(model));
}

bool BeginsAsGguf(const Result<MappedFile>& file) {
  return file.ok() && file->bytes().size() >= sizeof(kGgufMagic) &&
         std::memcmp(file->bytes().data(), &kGgufMagic, sizeof(kGgufMagic)) == 0;
}

}  // namespace

bool BeginsAsGguf(const std::string& path) { return BeginsAsGguf(MappedFile::Open(path)); }

size_t GgufArray::size() const {
  return std::visit([](const auto& v) { return v.size(); }, values);
}

Result<std::shared_ptr<const GgufFile>> GgufFile::Open(const std::string& path) try {
  if (const std::optional<ShardName> name = ParseShardName(path)) return OpenShards(path, *name);
  LS_ASSIGN(MappedFile file, MappedFile::Open(path));
  return OpenSingle(path, std::move(file));
} catch (const std::bad_alloc&) {
  return ResourceExhausted(path + ": not enough memory for its metadata");
}

Result<std::shared_ptr<const GgufFile>> GgufFile::OpenIfGguf(const std::string& path) try {
  Result<MappedFile> file = MappedFile::Open(path);
  if (!BeginsAsGguf(file)) return std::shared_ptr<const GgufFile>();
  if (const std::optional<ShardName> name = ParseShardName(path)) return OpenShards(path, *name);
  return OpenSingle(path, *std::move(file));
} catch (const std::bad_alloc&) {
  return ResourceExhausted(path + ": not enough memory for its metadata");
}

Result<std::shared_ptr<const GgufFile>> GgufFile::Parse(std::span<const std::byte> bytes,
                                                        const std::string& name) {
  auto model = std::make_shared<GgufModel>(name);
  LS_ASSIGN(GgufContents contents, ParseGguf(bytes, name));
  LS_TRY(ExpectWhole(contents, name));
  model->Borrow({.bytes = bytes, .identity = std::nullopt});
  model->AddFirst(std::move(contents));
  LS_TRY(model->IndexTensors());
  return std::shared_ptr<const GgufFile>(std::move(model));
}

}  // namespace longspec
