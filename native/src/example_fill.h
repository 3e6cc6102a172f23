// Filling columns from messages: what the two readers of a message share (example_decode.cc reads
// by protobuf's rules, example_compat.cc as TensorFlow does).
//
// 1. Records of one file mostly have the same features in the same order. So the column of an entry
//    is guessed from the last record, by its position, and one comparison confirms it.
// 2. There are two ways through a record. The short one (`quick`) follows a plan made from the last
//    record, and gives up at the first byte that is not as planned or not in the usual form. Then
//    the reader starts over in the same places, so nothing is lost. The usual form means the same
//    to both readers.
// 3. Numbers are copied from the message to their place in the column, with nothing in between.
// 4. Kinds and numbers of values are judged at the end of the record, column by column.
//
// What earlier rows left in the outputs says where to go on, and is checked like everything else: a
// caller may have written over it.
#pragma once
#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "example_decode.h"
#include "example_walk.h"
#include "packed_varints.h"

namespace tensorwire {

inline bool same_bytes(const char* a, const char* b, size_t size) {
  if (size >= 8) {
    uint64_t x, y;
    for (size_t i = 0; i + 8 < size; i += 8) {
      std::memcpy(&x, a + i, 8);
      std::memcpy(&y, b + i, 8);
      if (x != y) return false;
    }
    std::memcpy(&x, a + size - 8, 8);
    std::memcpy(&y, b + size - 8, 8);
    return x == y;
  }
  if (size >= 4) {
    uint32_t x, y, u, v;
    std::memcpy(&x, a, 4);
    std::memcpy(&y, b, 4);
    std::memcpy(&u, a + size - 4, 4);
    std::memcpy(&v, b + size - 4, 4);
    return x == y && u == v;
  }
  for (size_t i = 0; i < size; i++)
    if (a[i] != b[i]) return false;
  return true;
}

inline const char* text_of(const uint8_t* p) { return reinterpret_cast<const char*>(p); }

// The rows of one call, one after the other.
class Filler {
 public:
  Filler(const ExampleDecoder& decoder, const uint8_t* data, size_t size, const Output* outputs);
  virtual ~Filler() = default;

  Decoded result;

  // Decodes a message into a row. False: `result` says why.
  bool message(Span span, size_t row);

 protected:
  // Reads a message: finds the column of every entry by `guess` or else `learn`, fills its values
  // between `open` and `close` of an instance, and ends with `finish`.
  virtual bool read(Span span) = 0;

  // A feature of this record, or one step of a feature list, while it is read.
  struct Instance {
    const Column& column;
    const Output& out;
    const uint8_t* where;  // for errors
    int kind = kNoList;
    size_t number = 0;  // of this instance in its column
    size_t first = 0;   // the number of its first value
    size_t base = 0;    // bytes of all strings before it
    size_t used = 0;    // and with those of it so far
    size_t count = 0;
  };

  // What the last feature of a column's name in this record came to.
  struct Cell {
    uint64_t stamp = 0;
    bool present = false;
    int fault = kOk;
    const uint8_t* where = nullptr;
    uint64_t found = 0;
  };

  bool fail(int status, const uint8_t* where) {
    result.status = status;
    result.offset = static_cast<size_t>(where - data_);
    return false;
  }

  // The fault of a part, unless there is one already (kNoSpace).
  bool malformed(const Reader& r) {
    if (result.status == kOk) {
      result.status = r.status;
      result.offset = r.offset;
    }
    return false;
  }

  bool no_space(const Column& column) {
    result.status = kNoSpace;
    result.offset = 0;
    result.column = static_cast<size_t>(&column - decoder_.columns().data());
    return false;
  }

  // The column of an entry that looks like the one at its place in the last record; -1 if that had
  // none, kUnknown if it looks different.
  static constexpr int kUnknown = -2;
  int guess(Span entry, bool list, Span& value) const {
    if (positions_[list] >= guesses_[list].size()) return kUnknown;
    const Guess& guess = guesses_[list][positions_[list]];
    const size_t size = guess.head.size();
    if (entry.size() <= size) return kUnknown;
    if (!same_bytes(text_of(entry.at), guess.head.data(), size)) return kUnknown;
    return is_one_field({entry.at + size - 1, entry.end}, 0x12, value) ? guess.column : kUnknown;
  }

  // The column of a name or -1, to be guessed next time.
  int learn(std::string_view name, bool list);

  Cell& new_cell(size_t index) {
    Cell& cell = cells_[index];
    cell.stamp = stamp_;
    cell.present = false;
    cell.fault = kOk;
    return cell;
  }

  // Where instance `number` begins. False if the buffers of its column are full.
  bool open(Instance& instance, size_t number) {
    const Output& out = instance.out;
    if (out.splits && !fits(number, 2, out.splits_room)) return no_space(instance.column);
    instance.number = number;
    instance.first = out.splits ? static_cast<size_t>(out.splits[number])
                                : number * static_cast<size_t>(instance.column.length);
    if (!out.offsets) return instance.first <= out.values_room || no_space(instance.column);
    if (instance.first >= out.offsets_room) return no_space(instance.column);
    instance.base = instance.used = static_cast<size_t>(out.offsets[instance.first]);
    return instance.base <= out.values_room || no_space(instance.column);
  }

  // The end of an instance: whether it counts. If not, the record is refused at its end.
  bool close(const Instance& instance, Cell& cell) {
    judge(instance, cell);
    if (cell.fault != kOk) return false;
    const size_t end = instance.first + instance.count;
    if (instance.out.splits) instance.out.splits[instance.number + 1] = static_cast<int64_t>(end);
    return true;
  }

  bool floats(Instance& instance, const uint8_t* from, size_t count) {
    const Place where = place(instance, count, instance.out.values_room);
    if (where == kFull) return no_space(instance.column);
    if (where == kStore && count)
      std::memcpy(instance.out.values + 4 * (instance.first + instance.count), from, 4 * count);
    instance.count += count;
    return true;
  }

  bool ints(Instance& instance, Reader& r, Span run) {
    // A run has at most as many numbers as bytes. Those past a fixed length are not stored.
    const size_t length = static_cast<size_t>(instance.column.length);
    const size_t begin = instance.first + instance.count, room_at_all = instance.out.values_room;
    const size_t wanted =
        instance.column.length < 0 ? run.size() : length - std::min(instance.count, length);
    const size_t room = std::min(room_at_all - std::min(begin, room_at_all), wanted);
    auto* to = reinterpret_cast<int64_t*>(instance.out.values) + begin;
    size_t count = 0;
    if (!each_varint(r, run, limit_, [&](uint64_t value) {
          if (count < room) to[count] = static_cast<int64_t>(value);
          count++;
        }))
      return false;
    if (count > room && room < wanted) return no_space(instance.column);
    instance.count += count;
    return true;
  }

  bool string(Instance& instance, Span from) {
    const Output& out = instance.out;
    const size_t room =
        instance.column.places ? out.values_room / 2 : out.offsets_room - (out.offsets_room > 0);
    const Place where = place(instance, 1, room);
    if (where == kFull) return no_space(instance.column);
    if (where == kStore && instance.column.places) {
      const int64_t start_and_size[2] = {from.at - data_, static_cast<int64_t>(from.size())};
      std::memcpy(out.values + 16 * (instance.first + instance.count), start_and_size, 16);
    } else if (where == kStore) {
      const size_t size = from.size(), used = instance.used;
      if (size > out.values_room - used) return no_space(instance.column);
      if (size <= 16 && out.values_room - used >= 16 && limit_ - from.at >= 16)
        std::memcpy(out.values + used, from.at, 16);  // the next string overwrites the rest
      else
        std::memcpy(out.values + used, from.at, size);
      instance.used = used + size;
      out.offsets[instance.first + instance.count + 1] = static_cast<int64_t>(instance.used);
    }
    instance.count++;
    return true;
  }

  // The end of a record: the first fault of its columns, and what is missing.
  bool finish();

  static bool fits(size_t first, size_t count, size_t room) {
    return first <= room && count <= room - first;
  }

  const ExampleDecoder& decoder_;
  const uint8_t* data_;
  const uint8_t* limit_;
  const Output* outputs_;
  size_t row_ = 0;
  uint64_t stamp_ = 0;            // of this record
  size_t positions_[2] = {0, 0};  // entries so far, of features and of feature lists
  bool strange_ = false;

 private:
  // What stood at a position of the last record: the entry's bytes up to its value (the key's tag,
  // length and text, the value's tag).
  struct Guess {
    std::string head;
    int column;
  };

  // What one entry of a record should look like, and where it goes.
  struct Step {
    uint64_t words[2], masks[2];  // the first 16 bytes of its head
    size_t head;
    const std::string* text;  // the head, if it is longer
    int column;               // or -1
    int kind;
    uint64_t tags;  // of the list and its run, in a usual value: length, tag, length, tag, length
  };

  // Whether `more` values have a place. Those past a fixed length are counted and not stored: the
  // record is refused at its end.
  enum Place { kStore, kDrop, kFull };
  Place place(const Instance& instance, size_t more, size_t room) {
    const int64_t length = instance.column.length;
    if (length >= 0 && instance.count + more > static_cast<size_t>(length)) return kDrop;
    return instance.first + instance.count + more <= room ? kStore : kFull;
  }

  // Whether an instance is what its column wants; the first fault stays.
  void judge(const Instance& instance, Cell& cell) {
    if (cell.fault != kOk) return;
    const Column& column = instance.column;
    const bool kind = instance.kind == column.kind || instance.kind == kNoList;
    if (kind && (column.length < 0 || instance.count == static_cast<size_t>(column.length))) return;
    cell.fault = kind ? kWrongLength : kWrongKind;
    cell.found = kind ? instance.count : static_cast<uint64_t>(instance.kind);
    cell.where = instance.where;
    faulty_ = true;
  }

  // One packed run, or one string, of the right number of values and with room for them. Here,
  // because `quick` takes twice as long if this is a call.
  bool quick_values(size_t index, int kind, Span run) {
    const Output& out = outputs_[index];
    const size_t length = static_cast<size_t>(decoder_.columns()[index].length);
    const size_t first = out.splits ? static_cast<size_t>(out.splits[row_]) : row_ * length;
    size_t count = 1;
    if (kind == kFloatList) {
      count = run.size() / 4;
      if (run.size() % 4 || (!out.splits && count != length)) return false;
      if (!fits(first, count, out.values_room)) return false;
      std::memcpy(out.values + 4 * first, run.at, run.size());
    } else if (kind == kInt64List) {
      const size_t room = first <= out.values_room ? out.values_room - first : 0;
      auto* to = reinterpret_cast<int64_t*>(out.values) + first;
      const size_t most = out.splits ? room : std::min(room, length);
      const ptrdiff_t stored = packed_varints(run.at, run.end, limit_, to, most);
      if (stored < 0 || (!out.splits && static_cast<size_t>(stored) != length)) return false;
      count = static_cast<size_t>(stored);
    } else if (out.offsets) {
      if ((!out.splits && length != 1) || !fits(first, 2, out.offsets_room)) return false;
      const size_t used = static_cast<size_t>(out.offsets[first]);
      if (!fits(used, run.size(), out.values_room)) return false;
      if (run.size() <= 16 && fits(used, 16, out.values_room))
        std::memcpy(out.values + used, run.at, 16);  // the next string overwrites the rest
      else
        std::memcpy(out.values + used, run.at, run.size());
      out.offsets[first + 1] = static_cast<int64_t>(used + run.size());
    } else {
      if (length != 1 || !fits(first, 1, out.values_room / 2)) return false;
      const int64_t where[2] = {run.at - data_, static_cast<int64_t>(run.size())};
      std::memcpy(out.values + 16 * first, where, 16);
    }
    if (out.splits) out.splits[row_ + 1] = static_cast<int64_t>(first + count);
    return true;
  }

  void make_plan();
  bool quick(Span span);
  bool missing(size_t index);

  static constexpr size_t kMostSteps = 256, kMostPlans = 64;
  std::vector<Cell> cells_;
  std::vector<Guess> guesses_[2];
  std::vector<Step> plan_;
  std::vector<size_t> absent_;  // columns that records of the plan do not have
  size_t plans_ = 0;
  bool learned_ = false, faulty_ = false, plan_strange_ = false;
};

// Reads as TensorFlow's own parser does, for a decoder with `compat`.
std::unique_ptr<Filler> compat_filler(const ExampleDecoder& decoder, const uint8_t* data,
                                      size_t size, const Output* outputs);

}  // namespace tensorwire
