// Records of one file mostly have the same features in the same order. So the column of a feature is guessed from the last record, by its
// position, and one comparison confirms it. Numbers are copied from the message to their place in the column, with nothing in between.
// What earlier rows left in the outputs says where to go on, and is checked like everything else: a caller may have written over it.
#include "example_decode.h"

#include <algorithm>
#include <cstring>
#include <tuple>

#include "example_walk.h"
#include "tfrecord.h"

namespace tensorwire {

namespace {

bool same_bytes(const char* a, const char* b, size_t size) {
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

bool fits(size_t first, size_t count, size_t room) { return first <= room && count <= room - first; }

// What stood at a position of the last record: the entry's bytes up to its value (the key's tag, length and text, the value's tag).
struct Guess {
  std::string head;
  int column;
};

}  // namespace

// One call: the state that a record and its features share.
class Decoding {
 public:
  Decoding(const ExampleDecoder& decoder, const uint8_t* data, size_t size, const Output* outputs)
      : decoder_(decoder), data_(data), limit_(data + size), outputs_(outputs), cells_(decoder.columns_.size()) {}

  Decoded result;

  bool message(Span span, size_t row) {
    row_ = row;
    stamp_++;
    faulty_ = false;
    positions_[0] = positions_[1] = 0;
    Reader r = reader_of(data_, span);
    while (!r.done()) {
      unsigned field, wire;
      if (!r.tag(field, wire)) return malformed(r);
      if (wire != kLen || (field != 1 && (field != 2 || !decoder_.sequence_))) {
        if (!r.skip(field, wire)) return malformed(r);
        continue;
      }
      uint64_t size;
      if (!read_length(r, size)) return malformed(r);
      const Span part{r.at, r.at + size};
      if (!entries(part, field == 2)) return false;
      r.at = part.end;
    }
    return finish();
  }

 private:
  // A feature of this record, or one step of a feature list, while it is read.
  struct Instance {
    const Column& column;
    const Output& out;
    size_t first;  // the number of its first value
    size_t base;   // bytes of all strings before it
    size_t used;   // and with those of it so far
    size_t count = 0;
    int kind = kNoList;
    const uint8_t* where = nullptr;
  };

  // What the last feature of a column's name in this record came to.
  struct Cell {
    uint64_t stamp = 0;
    bool present = false;
    int fault = kOk;
    const uint8_t* where = nullptr;
    uint64_t found = 0;
  };

  bool malformed(const Reader& r) {
    result.status = r.status;
    result.offset = r.offset;
    return false;
  }

  bool no_space(const Column& column) {
    result.status = kNoSpace;
    result.offset = 0;
    result.column = static_cast<size_t>(&column - decoder_.columns_.data());
    return false;
  }

  bool entries(Span span, bool list) {
    Reader r = reader_of(data_, span);
    const bool ok = each_message(r, 1, [&](Span at) {
      Span value;
      int index = guess(at, list, value);
      const bool usual = index != kUnknown;
      if (!usual) {
        if (!read_entry(r, at, entry_)) return false;
        index = learn(entry_, list);
        value = entry_.value;
      }
      positions_[list]++;
      if (index < 0) return true;
      const Span* values = usual || entry_.usual ? &value : entry_.values.data();
      const size_t count = usual || entry_.usual ? 1 : entry_.values.size();
      Cell& cell = cells_[static_cast<size_t>(index)];
      cell.stamp = stamp_;
      cell.present = false;
      cell.fault = kOk;
      return list ? steps(static_cast<size_t>(index), values, count, cell) : feature(static_cast<size_t>(index), values, count, cell);
    });
    if (!ok && result.status == kOk) return malformed(r);
    return ok;
  }

  // The column of an entry that looks like the one at its place in the last record; -1 if that had none, kUnknown if it looks different.
  static constexpr int kUnknown = -2;
  int guess(Span entry, bool list, Span& value) {
    if (positions_[list] >= guesses_[list].size()) return kUnknown;
    const Guess& guess = guesses_[list][positions_[list]];
    const size_t size = guess.head.size();
    if (entry.size() <= size || !same_bytes(reinterpret_cast<const char*>(entry.at), guess.head.data(), size)) return kUnknown;
    return is_one_field({entry.at + size - 1, entry.end}, 0x12, value) ? guess.column : kUnknown;
  }

  int learn(const Entry& entry, bool list) {
    std::vector<Guess>& guesses = guesses_[list];
    const size_t position = positions_[list], size = entry.key.size();
    const int column = decoder_.find(entry.key, list);
    if (position > guesses.size() || position >= 4096 || size >= 0x80) return column;  // looked up each time
    Guess guess{std::string{'\x0a', static_cast<char>(size)}.append(entry.key).append(1, '\x12'), column};
    if (position < guesses.size())
      guesses[position] = std::move(guess);
    else
      guesses.push_back(std::move(guess));
    return column;
  }

  bool feature(size_t index, const Span* values, size_t count, Cell& cell) {
    const Column& column = decoder_.columns_[index];
    const Output& out = outputs_[index];
    const size_t first = out.splits ? static_cast<size_t>(out.splits[row_]) : row_ * static_cast<size_t>(column.length);
    if (count == 1 && quick_floats(column, out, first, values[0])) {
      cell.present = true;
      return true;
    }
    size_t base;
    if (!begins(out, first, base)) return no_space(column);
    Instance instance{column, out, first, base, base};
    for (size_t i = 0; i < count; i++)
      if (!lists(instance, values[i])) return false;
    if (instance.kind == kNoList) return true;
    cell.present = true;
    judge(instance, cell);
    if (out.splits && cell.fault == kOk) out.splits[row_ + 1] = static_cast<int64_t>(first + instance.count);
    return true;
  }

  // Whether values from number `first` on can have a place, and where their bytes begin if they are strings.
  static bool begins(const Output& out, size_t first, size_t& base) {
    base = 0;
    if (!out.offsets) return first <= out.values_room;
    if (first >= out.offsets_room) return false;
    base = static_cast<size_t>(out.offsets[first]);
    return base <= out.values_room;
  }

  // Floats in the usual form, of the right number: one copy. False says only that it is another case.
  bool quick_floats(const Column& column, const Output& out, size_t first, Span value) {
    Span list, run;
    if (column.kind != kFloatList || !is_one_field(value, kFloatList << 3 | kLen, list) || !is_one_field(list, 0x0a, run) || run.size() % 4) return false;
    const size_t count = run.size() / 4;
    if ((!out.splits && count != static_cast<size_t>(column.length)) || !fits(first, count, out.values_room)) return false;
    std::memcpy(out.values + 4 * first, run.at, 4 * count);
    if (out.splits) out.splits[row_ + 1] = static_cast<int64_t>(first + count);
    return true;
  }

  bool steps(size_t index, const Span* values, size_t count, Cell& cell) {
    const Column& column = decoder_.columns_[index];
    const Output& out = outputs_[index];
    size_t step = static_cast<size_t>(out.steps[row_]);
    cell.present = true;
    for (size_t i = 0; i < count; i++) {
      Reader r = reader_of(data_, values[i]);
      const bool ok = each_message(r, 1, [&](Span at) {
        if (out.splits && !fits(step, 2, out.splits_room)) return no_space(column);
        const size_t first = out.splits ? static_cast<size_t>(out.splits[step]) : step * static_cast<size_t>(column.length);
        size_t base;
        if (!begins(out, first, base)) return no_space(column);
        Instance instance{column, out, first, base, base};
        if (!lists(instance, at)) return false;
        judge(instance, cell);
        if (cell.fault == kOk) {
          if (out.splits) out.splits[step + 1] = static_cast<int64_t>(first + instance.count);
          step++;
        }
        return true;
      });
      if (!ok) return result.status == kOk ? malformed(r) : false;
    }
    out.steps[row_ + 1] = static_cast<int64_t>(step);
    return true;
  }

  // Whether an instance is what its column wants; the first fault stays.
  void judge(const Instance& instance, Cell& cell) {
    if (cell.fault != kOk) return;
    const bool kind = instance.kind == instance.column.kind || instance.kind == kNoList;
    if (kind && (instance.column.length < 0 || instance.count == static_cast<size_t>(instance.column.length))) return;
    cell.fault = kind ? kWrongLength : kWrongKind;
    cell.found = kind ? instance.count : static_cast<uint64_t>(instance.kind);
    cell.where = instance.where;
    faulty_ = true;
  }

  bool lists(Instance& instance, Span span) {
    instance.where = span.at;
    Span list;
    if (instance.kind == kNoList && is_one_field(span, static_cast<uint8_t>(instance.column.kind << 3 | kLen), list)) {
      instance.kind = instance.column.kind;
      return values(instance, list);
    }
    Reader r = reader_of(data_, span);
    const bool ok = each_list(r, [&](int kind, Span list) {
      if (kind != instance.kind) {  // of a oneof the last one counts
        instance.kind = kind;
        instance.count = 0;
        instance.used = instance.base;
      }
      return kind != instance.column.kind || values(instance, list);
    });
    if (!ok && result.status == kOk) return malformed(r);
    return ok;
  }

  // Whether `more` values have a place. Those past a fixed length are counted and not stored: the record is refused at its end.
  enum Place { kStore, kDrop, kFull };
  Place place(const Instance& instance, size_t more, size_t room) {
    if (instance.column.length >= 0 && instance.count + more > static_cast<size_t>(instance.column.length)) return kDrop;
    return instance.first + instance.count + more <= room ? kStore : kFull;
  }

  bool values(Instance& instance, Span list) {
    Reader r = reader_of(data_, list);
    bool ok;
    Span run;
    if (instance.kind == kBytesList) {
      ok = each_string(r, [&](Span from) { return string(instance, from); });
    } else if (instance.kind == kFloatList) {
      const auto take = [&](const uint8_t* from, size_t count) { return floats(instance, from, count); };
      ok = is_one_field(list, 0x0a, run) && run.size() % 4 == 0 ? take(run.at, run.size() / 4) : each_float_run(r, take);
    } else {
      const auto take = [&](Span from) { return ints(instance, r, from); };
      ok = is_one_field(list, 0x0a, run) ? take(run) : each_int_run(r, take);
    }
    return ok || (result.status == kOk ? malformed(r) : false);
  }

  bool floats(Instance& instance, const uint8_t* from, size_t count) {
    const Place where = place(instance, count, instance.out.values_room);
    if (where == kFull) return no_space(instance.column);
    if (where == kStore && count) std::memcpy(instance.out.values + 4 * (instance.first + instance.count), from, 4 * count);
    instance.count += count;
    return true;
  }

  bool ints(Instance& instance, Reader& r, Span run) {
    // A run has at most as many numbers as bytes. Those past a fixed length are counted and not stored.
    const size_t length = static_cast<size_t>(instance.column.length), begin = instance.first + instance.count;
    const size_t wanted = instance.column.length < 0 ? run.size() : length - std::min(instance.count, length);
    const size_t room = std::min(instance.out.values_room - std::min(begin, instance.out.values_room), wanted);
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
    const Place where = place(instance, 1, instance.column.places ? out.values_room / 2 : out.offsets_room ? out.offsets_room - 1 : 0);
    if (where == kFull) return no_space(instance.column);
    if (where == kStore && instance.column.places) {
      const int64_t found[2] = {from.at - data_, static_cast<int64_t>(from.size())};
      std::memcpy(out.values + 16 * (instance.first + instance.count), found, 16);
    } else if (where == kStore) {
      const size_t size = from.size(), used = instance.used;
      if (size > out.values_room - used) return no_space(instance.column);
      if (size <= 16 && out.values_room - used >= 16 && limit_ - from.at >= 16)
        std::memcpy(out.values + used, from.at, 16);  // the rest is overwritten by the next string, or never looked at
      else
        std::memcpy(out.values + used, from.at, size);
      instance.used = used + size;
      out.offsets[instance.first + instance.count + 1] = static_cast<int64_t>(instance.used);
    }
    instance.count++;
    return true;
  }

  // The end of a record: whatever is wrong with its columns, and what is missing.
  bool finish() {
    if (faulty_)
      for (size_t i = 0; i < cells_.size(); i++)
        if (cells_[i].stamp == stamp_ && cells_[i].fault != kOk) {
          result.status = cells_[i].fault;
          result.offset = static_cast<size_t>(cells_[i].where - data_);
          result.column = i;
          result.found = cells_[i].found;
          return false;
        }
    for (size_t i = 0; i < cells_.size(); i++) {
      const bool present = cells_[i].stamp == stamp_ && cells_[i].present;
      outputs_[i].present[row_] = present;
      if (!present && !missing(i)) return false;
    }
    return true;
  }

  bool missing(size_t index) {
    const Column& column = decoder_.columns_[index];
    const Output& out = outputs_[index];
    if (out.steps) {
      out.steps[row_ + 1] = out.steps[row_];
    } else if (out.splits) {
      out.splits[row_ + 1] = out.splits[row_];
    } else {
      const size_t length = static_cast<size_t>(column.length), first = row_ * length;
      if (column.places) {
        if (!fits(first, length, out.values_room / 2)) return no_space(column);
        std::memset(out.values + 16 * first, 0, 16 * length);
      } else if (column.kind == kBytesList) {
        if (!fits(first, length + 1, out.offsets_room)) return no_space(column);
        for (size_t i = 0; i < length; i++) out.offsets[first + i + 1] = out.offsets[first];
      } else {
        const size_t item = column.kind == kFloatList ? 4 : 8;
        if (!fits(first, length, out.values_room)) return no_space(column);
        std::memset(out.values + item * first, 0, item * length);
      }
    }
    return true;
  }

  const ExampleDecoder& decoder_;
  const uint8_t* data_;
  const uint8_t* limit_;
  const Output* outputs_;
  std::vector<Cell> cells_;
  std::vector<Guess> guesses_[2];
  size_t positions_[2] = {0, 0};
  Entry entry_;
  uint64_t stamp_ = 0;
  size_t row_ = 0;
  bool faulty_ = false;
};

ExampleDecoder::ExampleDecoder(std::vector<Column> columns, bool sequence)
    : columns_(std::move(columns)), sorted_(columns_.size()), sequence_(sequence) {
  for (size_t i = 0; i < sorted_.size(); i++) sorted_[i] = static_cast<int>(i);
  std::sort(sorted_.begin(), sorted_.end(), [&](int a, int b) {
    return std::tie(columns_[a].list, columns_[a].name) < std::tie(columns_[b].list, columns_[b].name);
  });
}

int ExampleDecoder::find(std::string_view name, bool list) const {
  const auto at = std::lower_bound(sorted_.begin(), sorted_.end(), name, [&](int a, std::string_view b) {
    return columns_[a].list != list ? columns_[a].list < list : std::string_view(columns_[a].name) < b;
  });
  return at != sorted_.end() && columns_[*at].list == list && columns_[*at].name == name ? *at : -1;
}

Decoded ExampleDecoder::decode(const uint8_t* data, size_t size, const int64_t* starts, const int64_t* sizes, size_t count, size_t row,
                               size_t rows, const Output* outputs, bool checked) const {
  Decoding decoding(*this, data, size, outputs);
  Decoded& result = decoding.result;
  count = std::min(count, row < rows ? rows - row : 0);
  const size_t footer = checked ? 0 : kFrameFooter;
  for (size_t known = 0; result.done < count; result.done++, row++) {
    if (result.done == known) {  // a few records ahead: their checksums are quicker together, and they are still in the cache when they are read
      for (const size_t ahead = std::min(known + 6, count); known < ahead; known++) {
        const uint64_t start = static_cast<uint64_t>(starts[known]), length = static_cast<uint64_t>(sizes[known]);
        if (start > size || length > size - start || size - start - length < footer) break;
      }
      const size_t inside = known - result.done;
      if (!checked) known = result.done + first_bad_data(data, starts + result.done, sizes + result.done, inside);
      if (known == result.done) {
        result.status = inside ? kBadDataCrc : kTruncated;
        result.offset = static_cast<size_t>(starts[known]);
        break;
      }
    }
    const uint8_t* at = data + starts[result.done];
    if (!decoding.message({at, at + sizes[result.done]}, row)) break;
  }
  return result;
}

}  // namespace tensorwire
