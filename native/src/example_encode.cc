// A protobuf message begins with its length, so each record is measured first and written then.
// Both passes trust nothing: another thread may change a column meanwhile, and then the record does
// not fit what was measured, and writing stops.
#include "example_encode.h"

#include <cstring>

#include "example_walk.h"
#include "tfrecord.h"

namespace tensorwire {
namespace {

constexpr size_t kMaxMessage = 0x7fffffff;  // protobuf's ceiling

size_t fast_varint_size(uint64_t value) {
  return (static_cast<size_t>(64 - __builtin_clzll(value | 1)) * 9 + 64) >>
         6;  // ceil(bits / 7) without a division
}

size_t with_length(size_t size) {
  return 1 + varint_size(size) + size;
}  // a tag, the length, and what it counts

// Where the values of an instance lie; false if the column contradicts itself.
bool values_of(const Input& in, size_t instance, size_t& from, size_t& to) {
  if (in.splits) {
    if (in.splits_size < 2 || instance > in.splits_size - 2) return false;
    from = static_cast<size_t>(in.splits[instance]);
    to = static_cast<size_t>(in.splits[instance + 1]);
  } else if (__builtin_mul_overflow(instance, static_cast<size_t>(in.length), &from) ||
             __builtin_add_overflow(from, static_cast<size_t>(in.length), &to)) {
    return false;
  }
  const size_t limit = in.kind == kBytesList ? in.offsets_size - 1 : in.values_size;
  return from <= to && to <= limit;
}

bool string_at(const Input& in, size_t index, size_t& from, size_t& to) {
  from = static_cast<size_t>(in.offsets[index]);
  to = static_cast<size_t>(in.offsets[index + 1]);
  return from <= to && to <= in.values_size;
}

// The size of a list's inside, and of its varints alone.
bool list_size(const Input& in, size_t from, size_t to, size_t& size, size_t& packed) {
  packed = 0;
  if (in.kind == kFloatList) {
    packed = 4 * (to - from);
  } else if (in.kind == kInt64List) {
    const auto* values = reinterpret_cast<const uint64_t*>(in.values);
    for (size_t i = from; i < to; i++) packed += fast_varint_size(values[i]);
  } else {
    size = 0;
    for (size_t i = from; i < to; i++) {
      size_t a, b;
      if (!string_at(in, i, a, b) || b - a > kMaxMessage) return false;
      size += with_length(b - a);
      if (size > kMaxMessage) return false;
    }
    return true;
  }
  size = from == to ? 0 : with_length(packed);
  return size <= kMaxMessage;
}

struct Writer {
  uint8_t* at;
  uint8_t* end;

  bool head(uint8_t tag, size_t size) {
    if (end - at < 11) return tail_head(tag, size);
    *at++ = tag;
    if (size < 0x80)
      *at++ = static_cast<uint8_t>(size);
    else
      at = write_varint(at, size);
    return true;
  }

  bool tail_head(uint8_t tag, size_t size) {
    if (static_cast<size_t>(end - at) < 1 + varint_size(size)) return false;
    *at++ = tag;
    at = write_varint(at, size);
    return true;
  }

  bool bytes(const void* from, size_t size) {
    if (static_cast<size_t>(end - at) < size) return false;
    if (size) std::memcpy(at, from, size);
    at += size;
    return true;
  }

  bool number(uint64_t value) {
    const size_t size = fast_varint_size(value);
    if (end - at >= 8 && size <= 8) {  // spread the groups of seven bits, and mark all but the last
      uint64_t x = value;
      x = (x & 0x000000000fffffffu) | ((x & 0x00fffffff0000000u) << 4);
      x = (x & 0x00003fff00003fffu) | ((x & 0x0fffc0000fffc000u) << 2);
      x = (x & 0x007f007f007f007fu) | ((x & 0x3f803f803f803f80u) << 1);
      x |= 0x8080808080808080u & ((uint64_t{1} << (8 * (size - 1))) - 1);
      std::memcpy(at, &x, 8);
      at += size;
      return true;
    }
    if (static_cast<size_t>(end - at) < size) return false;
    at = write_varint(at, value);
    return true;
  }
};

bool write_feature(Writer& w, const Input& in, size_t from, size_t to, size_t size, size_t packed) {
  if (!w.head(static_cast<uint8_t>(in.kind << 3 | kLen), size)) return false;
  if (in.kind == kBytesList) {
    for (size_t i = from; i < to; i++) {
      size_t a, b;
      if (!string_at(in, i, a, b) || !w.head(0x0a, b - a) || !w.bytes(in.values + a, b - a))
        return false;
    }
    return true;
  }
  if (from == to) return true;
  if (!w.head(0x0a, packed)) return false;
  if (in.kind == kFloatList) return w.bytes(in.values + 4 * from, packed);
  const auto* values = reinterpret_cast<const uint64_t*>(in.values);
  for (size_t i = from; i < to; i++)
    if (!w.number(values[i])) return false;
  return true;
}

// What a column takes in one message.
struct Cell {
  bool present;
  size_t from, to;      // of a feature: its values; of a list: its steps
  size_t size, packed;  // of a feature's list
  size_t value;         // the Feature or FeatureList
  size_t entry;         // the map entry around it
};

bool measure(const Input& in, size_t row, Cell& cell) {
  cell.present = true;
  if (in.present) {
    if (row >= in.present_size) return false;
    cell.present = in.present[row] != 0;
    if (!cell.present) return true;
  }
  if (in.list) {
    if (in.steps_size < 2 || row > in.steps_size - 2) return false;
    const int64_t from = in.steps[row], to = in.steps[row + 1];
    // A step takes four bytes or more, and steps of no values have no other bound.
    if (from < 0 || from > to || static_cast<size_t>(to - from) > kMaxMessage / 4) return false;
    cell.from = static_cast<size_t>(from);
    cell.to = static_cast<size_t>(to);
    cell.value = in.length == 0
                     ? 4 * (cell.to - cell.from)
                     : 0;  // no array bounds the number of steps without values: not one by one
    for (size_t step = cell.from; step < cell.to && in.length; step++) {
      size_t from, to, size, packed;
      if (!values_of(in, step, from, to) || !list_size(in, from, to, size, packed)) return false;
      cell.value += with_length(with_length(size));
      if (cell.value > kMaxMessage) return false;
    }
  } else {
    if (!values_of(in, row, cell.from, cell.to) ||
        !list_size(in, cell.from, cell.to, cell.size, cell.packed))
      return false;
    cell.value = with_length(cell.size);
  }
  cell.entry = with_length(in.name.size()) + with_length(cell.value);
  return true;
}

bool write_entry(Writer& w, const Input& in, const Cell& cell) {
  if (!w.head(0x0a, cell.entry) || !w.head(0x0a, in.name.size()) ||
      !w.bytes(in.name.data(), in.name.size()) || !w.head(0x12, cell.value))
    return false;
  if (!in.list) return write_feature(w, in, cell.from, cell.to, cell.size, cell.packed);
  for (size_t step = cell.from; step < cell.to; step++) {
    size_t from, to, size, packed;
    if (!values_of(in, step, from, to) || !list_size(in, from, to, size, packed)) return false;
    if (!w.head(0x0a, with_length(size)) || !write_feature(w, in, from, to, size, packed))
      return false;
  }
  return true;
}

}  // namespace

Encoded encode_examples(const std::vector<Input>& columns, bool sequence, size_t first, size_t step,
                        size_t count, bool framed, uint8_t* out, size_t room, int64_t* ends) {
  Encoded result;
  std::vector<Cell> cells(columns.size());
  for (size_t row = first;
       result.done<count; result.done++, row = step> SIZE_MAX - row ? SIZE_MAX : row + step) {
    size_t parts[2] = {0, 0};  // the features, and the feature lists
    for (size_t i = 0; i < columns.size(); i++) {
      if (!measure(columns[i], row, cells[i])) {
        result.status = kOutOfRange;
        return result;
      }
      if (cells[i].present) parts[columns[i].list] += with_length(cells[i].entry);
    }
    const size_t message = with_length(parts[0]) + (sequence ? with_length(parts[1]) : 0);
    if (message > kMaxMessage) {
      result.status = kOutOfRange;
      return result;
    }
    const size_t wanted = message + (framed ? kFrameHeader + kFrameFooter : 0);
    if (wanted > room - result.used) {
      result.status = kNoSpace;
      result.wanted = wanted;
      return result;
    }
    uint8_t* start = out + result.used + (framed ? kFrameHeader : 0);
    Writer w{start, start + message};
    bool ok = true;
    for (int list = 0; list < (sequence ? 2 : 1); list++) {
      ok = ok && w.head(static_cast<uint8_t>((list + 1) << 3 | kLen), parts[list]);
      for (size_t i = 0; i < columns.size() && ok; i++)
        if (columns[i].list == (list == 1) && cells[i].present)
          ok = write_entry(w, columns[i], cells[i]);
    }
    if (!ok || w.at != w.end) {
      result.status = kOutOfRange;
      return result;
    }
    if (framed) seal_frame(start - kFrameHeader, message);
    result.used += wanted;
    if (ends) ends[result.done] = static_cast<int64_t>(result.used);
  }
  return result;
}

}  // namespace tensorwire
