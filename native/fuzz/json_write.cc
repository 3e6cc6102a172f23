// write_json: any bits of any kind, in lists by lengths or by row_splits, sound or not, are written
// inside of the room that was asked for, and sound ones are read back as the same bits, but for
// NaNs, which are all the same in text.
#include <vector>

#include "fuzz.h"
#include "json_floats.h"
#include "json_numbers.h"
#include "protobuf.h"

using namespace tensorwire;

namespace {

uint64_t bits_at(JsonKind kind, const uint8_t* values, size_t i) {
  uint64_t bits = 0;
  std::memcpy(&bits, values + i * json_width(kind), json_width(kind));
  return bits;
}

bool is_nan(JsonKind kind, uint64_t bits) {
  const FloatForm& form = kFloatForms[kind];
  const uint64_t size = form.sign ? bits & (form.sign - 1) : bits;
  return (size > form.most && size != form.infinity) ||
         (form.nan == form.sign && form.nan && bits == form.nan);
}

// The bits that come back: of types below a byte only some count, and NaNs are the usual one.
uint64_t expected(JsonKind kind, uint64_t bits) {
  switch (kind) {
    case kBool:
      return bits != 0;
    case kInt4:
    case kUint4:
      return bits & 15;
    case kInt2:
    case kUint2:
      return bits & 3;
    case kFloat6E2m3fn:
    case kFloat6E3m2fn:
    case kFloat4E2m1fn:
      return bits & float_mask(kind);
    default:
      return is_float(kind) && is_nan(kind, bits) ? kFloatForms[kind].nan : bits;
  }
}

void check(JsonKind kind, const uint8_t* values, size_t count, const JsonLayout& layout) {
  const size_t room = json_room(kind, count, layout);
  if (room == SIZE_MAX || room > 1 << 22)
    return;  // levels of something else, or very many lists of nothing
  fuzz::Exact<uint8_t> text(room), other(room, 0x5a);
  const JsonWritten written = write_json(kind, values, count, layout, text.data(), room),
                    again = write_json(kind, values, count, layout, other.data(), room);
  CHECK(written.status == again.status && written.size == again.size &&
        std::memcmp(text.data(), other.data(), written.size) == 0);
  CHECK(room == 0 ||
        write_json(kind, values, count, layout, other.data(), room - 1).status == kOutOfRange);
  if (written.status != kOk) {
    CHECK(written.status == kOutOfRange);
    return;
  }
  CHECK(written.size <= room);
  JsonArray found;
  const JsonOutcome o = read_json_any(text.data(), written.size, 0, kind, true, SIZE_MAX, found);
  CHECK(o.status == kOk && o.end == written.size && found.count == count);
  for (size_t i = 0; i < count; i++)
    CHECK(bits_at(kind, found.values, i) == expected(kind, bits_at(kind, values, i)));
  for (size_t i = 1; i < layout.levels.size() && count; i++)
    if (layout.levels[i].splits)
      CHECK(found.splits[i].size() == layout.levels[i].size &&
            std::memcmp(found.splits[i].data(), layout.levels[i].splits,
                        8 * layout.levels[i].size) == 0);
  std::free(found.values);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz::Source source{data, size};
  const auto kind = static_cast<JsonKind>(source.take<uint8_t>() % kJsonKinds);
  JsonLayout layout;
  const uint8_t options = source.take<uint8_t>();
  layout.bare = options & 1;
  layout.indent = options & 2 ? (options >> 2 & 3) : -1;
  layout.margin = options >> 4;
  const size_t depth = source.take<uint8_t>() % 5;
  std::vector<std::vector<int64_t>> splits(depth);
  for (size_t i = 0; i < depth; i++) {
    const uint8_t what = source.take<uint8_t>();
    if (i && what & 0x80) {
      for (int n = what & 15; n >= 0; n--) {
        const int64_t next =
            splits[i].empty() ? 0 : splits[i].back() + (source.take<uint8_t>() & 3);
        splits[i].push_back(what & 0x40 ? source.take<int8_t>() : next);
      }
      layout.levels.push_back({splits[i].data(), splits[i].size(), 0});
    } else {
      layout.levels.push_back({nullptr, 0, static_cast<size_t>(what & 0x7f)});
    }
  }
  const size_t count = source.left / json_width(kind);
  check(kind, source.at, count, layout);
  JsonLayout flat = layout, one = layout;
  flat.levels = {{nullptr, 0, count}};
  one.levels.clear();
  check(kind, source.at, count, flat);
  if (count) check(kind, source.at, 1, one);
  return 0;
}
