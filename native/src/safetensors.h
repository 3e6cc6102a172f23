// The header of a safetensors file in its plain form:
// `{"name":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},...}`, with spaces around tokens at
// most. Whatever else JSON allows (escapes, other whitespace, metadata of others) is kOther, and
// for the general reader to judge.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace tensorwire {

constexpr int kHeaderRank = 32;  // what every NumPy can hold; more goes the general way

struct HeaderEntry {
  std::string_view name;
  std::string_view dtype;
  int rank;
  int64_t dims[kHeaderRank];
  uint64_t bound;  // product of the dims that are not zero, at most INT64_MAX
  uint64_t start;
  uint64_t stop;
};

class HeaderReader {
 public:
  enum Step { kEntry, kEnd, kOther };
  explicit HeaderReader(std::string_view text)
      : at_(text.data()), end_(text.data() + text.size()) {}
  Step next(HeaderEntry& entry);
  std::string_view metadata() const {
    return metadata_;
  }  // the JSON object behind "__metadata__" as it stands, empty if there is none

 private:
  bool spaces();
  bool take(char c);
  bool string(std::string_view& out);
  bool number(uint64_t& out);
  bool entry(HeaderEntry& out);
  bool object();
  const char* at_;
  const char* end_;
  bool open_ = false;
  bool first_ = true;
  std::string_view metadata_;
};

// The metadata of a file that is one tensor, not a dict of one, in the words of the Python side.
inline constexpr std::string_view kLoneMetadata = R"({"tensorwire":"{\"version\":1,\"spec\":{}}"})";

// Whether a name stands in JSON as it is.
bool is_plain_name(std::string_view name);
void append_entry(std::string& out, std::string_view name, std::string_view dtype,
                  const int64_t* dims, int rank, uint64_t start, uint64_t stop);

}  // namespace tensorwire
