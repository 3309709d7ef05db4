#include "train/safetensors.h"

#include <algorithm>
#include <array>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <set>

#include "base/error.h"

namespace sumpter {
namespace {

constexpr std::string_view kMetadata = "__metadata__";

struct Dtype {
  std::string_view name;
  ElementType type;
};
constexpr std::array<Dtype, 10> kDtypes = {{{"F32", ElementType::f32},
                                            {"F64", ElementType::f64},
                                            {"BF16", ElementType::bf16},
                                            {"F16", ElementType::f16},
                                            {"I8", ElementType::i8},
                                            {"U8", ElementType::u8},
                                            {"I16", ElementType::i16},
                                            {"I32", ElementType::i32},
                                            {"I64", ElementType::i64},
                                            {"BOOL", ElementType::boolean}}};

std::string_view dtype_of(ElementType type) { return std::ranges::find(kDtypes, type, &Dtype::type)->name; }

// A text from a file, short enough for a message.
std::string shown(std::string_view text) {
  constexpr std::size_t kMost = 100;
  return text.size() <= kMost ? fmt::format("\"{}\"", text) : fmt::format("\"{}\"...", text.substr(0, kMost));
}

// Bytes of an array; nullopt when there is no such array or its size does not fit.
std::optional<std::uint64_t> bytes_of(ElementType type, std::span<const std::int64_t> shape) {
  const auto is_negative = [](std::int64_t extent) { return extent < 0; };
  if (std::ranges::any_of(shape, is_negative)) return std::nullopt;
  if (std::ranges::find(shape, 0) != shape.end()) return 0;
  constexpr std::uint64_t kMost = std::numeric_limits<std::int64_t>::max();
  std::uint64_t bytes = size_of(type);
  for (const std::int64_t extent : shape) {
    if (bytes > kMost / static_cast<std::uint64_t>(extent)) return std::nullopt;
    bytes *= static_cast<std::uint64_t>(extent);
  }
  return bytes;
}

// Follows the JSON as it is read, so that no header makes a tree of it, however large or deep:
//   {"__metadata__": {key: text, ...}, name: {"dtype": text, "shape": [n, ...], "data_offsets": [begin, end]}, ...}
class HeaderReader : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit HeaderReader(const std::filesystem::path& file) : file_(file.string()) {}

  SafetensorsHeader take() { return std::move(header_); }

  bool start_object(std::size_t /*elements*/) override {
    if (place_ == Place::nothing)
      place_ = Place::top;
    else if (place_ == Place::top && is_metadata_)
      place_ = Place::metadata;
    else if (place_ == Place::top)
      begin_entry();
    else
      wrong("an object");
    return true;
  }
  bool end_object() override {
    if (place_ == Place::entry) end_entry();
    place_ = place_ == Place::top ? Place::nothing : Place::top;
    return true;
  }
  bool key(string_t& name) override {
    if (place_ == Place::top) {
      name_ = name;
      is_metadata_ = name == kMetadata;
      if (!names_.insert(name).second) raise<DataError>("{}: the header has {} twice", file_, shown(name));
    } else if (place_ == Place::metadata) {
      key_ = name;
      if (header_.metadata.contains(name)) raise<DataError>("{}: {} has {} twice", file_, kMetadata, shown(name));
    } else {
      key_ = name;
      if (name != "dtype" && name != "shape" && name != "data_offsets")
        raise<DataError>("{}: {} has the unknown key {}", file_, shown(name_), shown(name));
      if (!keys_.insert(name).second) raise<DataError>("{}: {} has \"{}\" twice", file_, shown(name_), name);
    }
    return true;
  }
  bool start_array(std::size_t /*elements*/) override {
    if (place_ != Place::entry || key_ == "dtype") wrong("an array");
    place_ = Place::numbers;
    return true;
  }
  bool end_array() override {
    place_ = Place::entry;
    return true;
  }
  bool string(string_t& text) override {
    if (place_ == Place::metadata)
      header_.metadata[key_] = text;
    else if (place_ == Place::entry && key_ == "dtype")
      header_.entries.back().type = parse_dtype(text);
    else
      wrong(shown(text));
    return true;
  }
  bool number_unsigned(number_unsigned_t number) override {
    if (place_ != Place::numbers) wrong(fmt::to_string(number));
    if (key_ == "data_offsets") {
      offsets_.push_back(number);
      if (offsets_.size() > 2) raise<DataError>("{}: {}: data_offsets has more than 2 numbers", file_, shown(name_));
      return true;
    }
    if (number > static_cast<number_unsigned_t>(std::numeric_limits<std::int64_t>::max()))
      wrong(fmt::to_string(number));
    header_.entries.back().shape.push_back(static_cast<std::int64_t>(number));
    return true;
  }
  bool number_integer(number_integer_t number) override { wrong(fmt::to_string(number)); }
  bool number_float(number_float_t number, const string_t& /*text*/) override { wrong(fmt::to_string(number)); }
  bool boolean(bool value) override { wrong(value ? "true" : "false"); }
  bool null() override { wrong("null"); }
  bool binary(binary_t& /*value*/) override { wrong("binary"); }
  // Without the parser's own message, which holds what it has read of a token, however long.
  bool parse_error(std::size_t position, const std::string& /*token*/,
                   const nlohmann::detail::exception& /*error*/) override {
    raise<DataError>("{}: the header is not JSON at its byte {}", file_, position);
  }

 private:
  enum class Place { nothing, top, metadata, entry, numbers };

  [[noreturn]] void wrong(std::string_view found) const {
    switch (place_) {
      case Place::nothing:
        raise<DataError>("{}: the header should be an object, and is {}", file_, found);
      case Place::top:
        raise<DataError>("{}: the header has {} as {}, where an object is expected", file_, shown(name_), found);
      case Place::metadata:
        raise<DataError>("{}: {} has {} as {}, where a text is expected", file_, kMetadata, shown(key_), found);
      case Place::entry:
      case Place::numbers:
        break;
    }
    raise<DataError>("{}: {} has {} in \"{}\", where {} expected", file_, shown(name_), found, key_,
                     key_ == "dtype" ? "the name of a type is" : "whole numbers from 0 are");
  }

  ElementType parse_dtype(const std::string& text) const {
    const auto* dtype = std::ranges::find(kDtypes, text, &Dtype::name);
    if (dtype != kDtypes.end()) return dtype->type;
    std::vector<std::string_view> known;
    std::ranges::transform(kDtypes, std::back_inserter(known), &Dtype::name);
    raise<DataError>("{}: {} has the dtype {}; known are {}", file_, shown(name_), shown(text), fmt::join(known, ", "));
  }

  void begin_entry() {
    place_ = Place::entry;
    header_.entries.emplace_back().name = name_;
    keys_.clear();
    offsets_.clear();
  }

  void end_entry() {
    for (const std::string_view needed : {"dtype", "shape", "data_offsets"}) {
      if (!keys_.contains(std::string(needed))) raise<DataError>("{}: {} has no \"{}\"", file_, shown(name_), needed);
    }
    if (offsets_.size() != 2)
      raise<DataError>("{}: {}: data_offsets has {} numbers instead of 2", file_, shown(name_), offsets_.size());
    header_.entries.back().begin = offsets_[0];
    header_.entries.back().end = offsets_[1];
  }

  std::string file_;
  SafetensorsHeader header_;
  Place place_ = Place::nothing;
  std::string name_;  // of the entry
  bool is_metadata_ = false;
  std::set<std::string> names_;
  std::string key_;             // within the entry
  std::set<std::string> keys_;  // of the entry so far
  std::vector<std::uint64_t> offsets_;
};

void check_entries(std::span<const SafetensorsEntry> entries, std::uint64_t data_bytes, const std::string& file) {
  std::vector<const SafetensorsEntry*> by_place;
  for (const SafetensorsEntry& entry : entries) {
    const std::optional<std::uint64_t> bytes = bytes_of(entry.type, entry.shape);
    if (entry.begin > entry.end || entry.end > data_bytes)
      raise<DataError>("{}: {} has the data_offsets {} to {}, but the file has {} bytes of data", file,
                       shown(entry.name), entry.begin, entry.end, data_bytes);
    if (bytes != entry.end - entry.begin)
      raise<DataError>("{}: {} is {} of shape [{}], which is {} bytes, but its data_offsets span {}", file,
                       shown(entry.name), dtype_of(entry.type), fmt::join(entry.shape, ", "),
                       bytes ? fmt::to_string(*bytes) : "too many", entry.end - entry.begin);
    by_place.push_back(&entry);
  }
  const auto place = [](const SafetensorsEntry* entry) { return std::pair(entry->begin, entry->end); };
  std::ranges::sort(by_place, {}, place);
  std::uint64_t end = 0;
  for (const SafetensorsEntry* entry : by_place) {
    if (entry->begin != end)
      raise<DataError>("{}: {} begins at byte {} of the data, but what is before it ends at {}", file,
                       shown(entry->name), entry->begin, end);
    end = entry->end;
  }
  if (end != data_bytes)
    raise<DataError>("{}: the header describes {} bytes of data, but the file has {}", file, end, data_bytes);
}

void check_writable(const NamedArray& array, const std::string& file) {
  if (array.name == kMetadata) raise<RequestError>("{}: no array may have the name {}", file, kMetadata);
  const std::optional<std::uint64_t> bytes = bytes_of(array.type, array.shape);
  if (bytes != array.bytes.size())
    raise<RequestError>("{}: {} is {} of shape [{}], which is {} bytes, but {} were given", file, shown(array.name),
                        name_of(array.type), fmt::join(array.shape, ", "), bytes ? fmt::to_string(*bytes) : "too many",
                        array.bytes.size());
}

// As a JSON text; throws nlohmann's type_error when it is not UTF-8.
std::string json_text(const std::string& text) { return nlohmann::json(text).dump(); }

}  // namespace

SafetensorsHeader parse_safetensors_header(std::string_view text, std::uint64_t data_bytes,
                                           const std::filesystem::path& file) {
  HeaderReader reader(file);
  nlohmann::json::sax_parse(text, &reader);
  SafetensorsHeader header = reader.take();
  check_entries(header.entries, data_bytes, file.string());
  return header;
}

SafetensorsLayout lay_out_safetensors(std::span<const NamedArray> arrays, const Metadata& metadata,
                                      const std::filesystem::path& file) {
  SafetensorsLayout layout;
  layout.order.resize(arrays.size());
  std::iota(layout.order.begin(), layout.order.end(), std::size_t{0});
  std::ranges::stable_sort(layout.order, std::greater<>(),
                           [&](std::size_t index) { return size_of(arrays[index].type); });
  std::vector<std::size_t> begin(arrays.size());
  std::size_t end = 0;
  for (const std::size_t index : layout.order) {
    begin[index] = end;
    end += arrays[index].bytes.size();
  }
  std::vector<std::string> entries;
  std::set<std::string_view> names;
  std::string_view current = kMetadata;
  try {
    if (!metadata.empty()) entries.push_back(fmt::format("\"{}\":{}", kMetadata, nlohmann::json(metadata).dump()));
    for (std::size_t index = 0; index < arrays.size(); ++index) {
      const NamedArray& array = arrays[index];
      current = array.name;
      check_writable(array, file.string());
      if (!names.insert(array.name).second)
        raise<RequestError>("{}: two arrays have the name {}", file.string(), shown(array.name));
      entries.push_back(fmt::format(R"({}:{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})", json_text(array.name),
                                    dtype_of(array.type), fmt::join(array.shape, ","), begin[index],
                                    begin[index] + array.bytes.size()));
    }
  } catch (const nlohmann::json::exception&) {
    raise<RequestError>("{}: {} is not UTF-8, or has a text that is not", file.string(), shown(current));
  }
  std::string text = fmt::format("{{{}}}", fmt::join(entries, ","));
  text.resize((text.size() + 7) / 8 * 8, ' ');
  if (text.size() > kMaxHeaderBytes)
    raise<RequestError>("{}: its header would have {} bytes, and {} are the most", file.string(), text.size(),
                        kMaxHeaderBytes);
  const std::uint64_t length = text.size();
  layout.head.assign(reinterpret_cast<const char*>(&length), sizeof(length));
  layout.head += text;
  return layout;
}

}  // namespace sumpter
