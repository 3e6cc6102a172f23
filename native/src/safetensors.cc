#include "safetensors.h"

#include <charconv>

namespace tensorwire {

bool HeaderReader::spaces() {
  while (at_ < end_ && *at_ == ' ') at_++;
  return at_ < end_;
}

bool HeaderReader::take(char c) {
  if (!spaces() || *at_ != c) return false;
  at_++;
  return true;
}

bool HeaderReader::string(std::string_view& out) {
  if (!take('"')) return false;
  const char* start = at_;
  while (at_ < end_ && *at_ != '"') {
    if (*at_ == '\\' || static_cast<unsigned char>(*at_) < 0x20) return false;
    at_++;
  }
  if (at_ == end_) return false;
  out = {start, static_cast<size_t>(at_ - start)};
  at_++;
  return true;
}

bool HeaderReader::number(uint64_t& out) {
  if (!spaces() || *at_ < '0' || *at_ > '9') return false;
  const char* start = at_;
  const auto [stop, error] = std::from_chars(at_, end_, out);
  if (error != std::errc() || out > INT64_MAX || (*start == '0' && stop - start > 1)) return false;
  at_ = stop;
  return at_ < end_ && (*at_ == ',' || *at_ == ']' ||
                        *at_ == ' ');  // 1.0 and 1e3 are for the general reader to refuse
}

bool HeaderReader::entry(HeaderEntry& out) {
  unsigned seen = 0;
  std::string_view key;
  if (!take('{')) return false;
  for (int i = 0; i < 3; i++) {
    if ((i && !take(',')) || !string(key) || !take(':')) return false;
    const unsigned bit = key == "dtype" ? 1 : key == "shape" ? 2 : key == "data_offsets" ? 4 : 0;
    if (!bit || (seen & bit)) return false;
    seen |= bit;
    if (bit == 1) {
      if (!string(out.dtype)) return false;
    } else if (bit == 2) {
      out.rank = 0;
      out.bound = 1;
      if (!take('[')) return false;
      while (spaces() && *at_ != ']') {
        uint64_t dim;
        if ((out.rank && !take(',')) || out.rank == kHeaderRank || !number(dim)) return false;
        if (__builtin_mul_overflow(out.bound, dim ? dim : 1, &out.bound) || out.bound > INT64_MAX)
          return false;
        out.dims[out.rank++] = static_cast<int64_t>(dim);
      }
      if (!take(']')) return false;
    } else if (!take('[') || !number(out.start) || !take(',') || !number(out.stop) || !take(']')) {
      return false;
    }
  }
  return take('}');
}

// An object of strings, of which only the end is looked for here.
bool HeaderReader::object() {
  if (!take('{')) return false;
  const char* start = at_ - 1;
  bool quoted = false;
  for (; at_ < end_; at_++) {
    if (quoted && *at_ == '\\') {
      if (++at_ == end_) return false;
    } else if (*at_ == '"') {
      quoted = !quoted;
    } else if (!quoted && *at_ == '{') {
      return false;
    } else if (!quoted && *at_ == '}') {
      at_++;
      metadata_ = {start, static_cast<size_t>(at_ - start)};
      return true;
    }
  }
  return false;
}

HeaderReader::Step HeaderReader::next(HeaderEntry& out) {
  if (!open_) {
    if (at_ == end_ || *at_ != '{') return kOther;
    at_++;
    open_ = true;
  }
  for (;;) {
    if (!spaces()) return kOther;
    if (*at_ == '}') {
      at_++;
      return spaces() ? kOther : kEnd;
    }
    if (!first_ && !take(',')) return kOther;
    if (!string(out.name)) return kOther;
    first_ = false;
    if (!take(':')) return kOther;
    if (out.name != "__metadata__") return entry(out) ? kEntry : kOther;
    if (!metadata_.empty() || !object()) return kOther;
  }
}

bool is_plain_name(std::string_view name) {
  for (const char c : name)
    if (c == '"' || c == '\\' || static_cast<unsigned char>(c) < 0x20) return false;
  return name != "__metadata__";
}

namespace {
void append_number(std::string& out, uint64_t value) {
  char digits[20];
  const auto [stop, error] = std::to_chars(digits, digits + sizeof digits, value);
  out.append(digits, stop);
}
}  // namespace

void append_entry(std::string& out, std::string_view name, std::string_view dtype,
                  const int64_t* dims, int rank, uint64_t start, uint64_t stop) {
  out.append("\"").append(name).append("\":{\"dtype\":\"").append(dtype).append("\",\"shape\":[");
  for (int i = 0; i < rank; i++) {
    if (i) out.push_back(',');
    append_number(out, static_cast<uint64_t>(dims[i]));
  }
  out.append("],\"data_offsets\":[");
  append_number(out, start);
  out.push_back(',');
  append_number(out, stop);
  out.append("]}");
}

}  // namespace tensorwire
