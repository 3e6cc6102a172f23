// Records of one file mostly have the same features in the same order. So the column of a feature is guessed from the last record, by its
// position, and one comparison confirms it. Numbers are copied from the message to their place in the column, with nothing in between.
//
// There are two ways through a record. The short one (`quick`) follows a plan made from the last record, and gives up at the first thing that
// is not as planned or not in the usual form; nothing is lost then, since the long one starts over in the same places.
// What earlier rows left in the outputs says where to go on, and is checked like everything else: a caller may have written over it.
#include "example_decode.h"

#include <algorithm>
#include <cstring>
#include <tuple>

#include "example_walk.h"
#include "packed_varints.h"
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

uint64_t load64(const uint8_t* p) {
  uint64_t v;
  std::memcpy(&v, p, 8);
  return v;
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
    if (!plan_.empty() && quick(span)) {
      result.strange |= plan_strange_;
      return true;
    }
    strange_ = false;
    if (!whole(span)) return false;
    result.strange |= strange_;
    return !learned_ || make_plan();
  }

 private:
  // What one entry of a record should look like, and where it goes.
  struct Step {
    uint64_t words[2], masks[2];  // the first 16 bytes of its head
    size_t head;
    const std::string* text;  // the head, if it is longer
    int column;               // or -1
    int kind;
    uint64_t tags;  // of the list and of its run, in a usual value: length, tag, length, tag, length
  };

  // A plan for records that look like this one. Always true; a file without such records stops trying.
  bool make_plan() {
    learned_ = false;
    plan_.clear();
    const std::vector<Guess>& guesses = guesses_[0];
    if (decoder_.sequence_ || guesses.size() != positions_[0] || guesses.size() > kMostSteps || ++plans_ > kMostPlans) return true;
    std::vector<bool> seen(decoder_.columns_.size());
    plan_strange_ = false;
    for (const Guess& guess : guesses) {
      plan_strange_ |= guess.column < 0;
      Step step{{0, 0}, {0, 0}, guess.head.size(), guess.head.size() > 16 ? &guess.head : nullptr, guess.column, kNoList, 0};
      if (guess.column >= 0) {
        const size_t index = static_cast<size_t>(guess.column);
        if (seen[index]) {  // twice in one record: the last one counts, and the long way knows that
          plan_.clear();
          return true;
        }
        seen[index] = true;
        step.kind = decoder_.columns_[index].kind;
        step.tags = static_cast<uint64_t>(step.kind << 3 | kLen) << 8 | uint64_t{0x0a} << 24;
      }
      uint8_t bytes[16] = {}, mask[16] = {};
      std::memcpy(bytes, guess.head.data(), std::min<size_t>(step.head, 16));
      std::memset(mask, 0xff, std::min<size_t>(step.head, 16));
      std::memcpy(step.words, bytes, 16);
      std::memcpy(step.masks, mask, 16);
      plan_.push_back(step);
    }
    absent_.clear();
    for (size_t i = 0; i < seen.size(); i++)
      if (!seen[i]) absent_.push_back(i);
    return true;
  }

  // A record that is as planned. Loads may go past it, so the last ones of a buffer take the long way.
  bool quick(Span span) {
    Span features;
    if (limit_ - span.end < 80 || !is_one_field(span, 0x0a, features)) return false;
    const uint8_t* at = features.at;
    for (const Step& step : plan_) {
      if (features.end - at < 4 || *at != 0x0a) return false;
      size_t size = at[1];
      const uint8_t* entry = at + 2;
      if (size >= 0x80) {
        if (at[2] >= 0x80) return false;
        size = (size & 0x7f) | static_cast<size_t>(at[2]) << 7;
        entry++;
      }
      if (size > static_cast<size_t>(features.end - entry) || size <= step.head) return false;
      if (((load64(entry) ^ step.words[0]) & step.masks[0]) | ((load64(entry + 8) ^ step.words[1]) & step.masks[1])) return false;
      if (step.text && !same_bytes(reinterpret_cast<const char*>(entry), step.text->data(), step.head)) return false;
      at = entry + size;
      const uint8_t* value = entry + step.head;
      const size_t length = size - step.head - 1;  // of the Feature, if its own length takes one byte
      Span run;
      if (length < 0x80 && length >= 4) {
        // All five bytes before the values follow from the entry's size.
        const uint64_t usual = step.tags | length | (length - 2) << 16 | static_cast<uint64_t>(length - 4) << 32;
        if (step.column < 0 ? *value != length : ((load64(value) ^ usual) & 0xffffffffff) != 0) return false;
        run = {value + 5, at};
      } else {
        Span inner, list;
        if (!is_one_field({value - 1, at}, 0x12, inner)) return false;
        if (step.column >= 0 && (!is_one_field(inner, static_cast<uint8_t>(step.kind << 3 | kLen), list) || !is_one_field(list, 0x0a, run))) return false;
      }
      if (step.column >= 0 && !quick_values(static_cast<size_t>(step.column), step.kind, run)) return false;
    }
    if (at != features.end) return false;
    for (const Step& step : plan_)
      if (step.column >= 0) outputs_[step.column].present[row_] = 1;
    for (const size_t index : absent_) {
      outputs_[index].present[row_] = 0;
      if (!missing(index)) {
        result = {kOk, 0, result.done, 0, 0, result.strange};  // the long way says what is wrong
        return false;
      }
    }
    return true;
  }

  // One packed run, or one string, of the right number of values and with room for them.
  bool quick_values(size_t index, int kind, Span run) {
    const Output& out = outputs_[index];
    const size_t length = static_cast<size_t>(decoder_.columns_[index].length);
    const size_t first = out.splits ? static_cast<size_t>(out.splits[row_]) : row_ * length;
    size_t count = 1;
    if (kind == kFloatList) {
      count = run.size() / 4;
      if (run.size() % 4 || (!out.splits && count != length) || !fits(first, count, out.values_room)) return false;
      std::memcpy(out.values + 4 * first, run.at, run.size());
    } else if (kind == kInt64List) {
      const size_t room = first <= out.values_room ? out.values_room - first : 0;
      const ptrdiff_t found = packed_varints(run.at, run.end, limit_, reinterpret_cast<int64_t*>(out.values) + first, out.splits ? room : std::min(room, length));
      if (found < 0 || (!out.splits && static_cast<size_t>(found) != length)) return false;
      count = static_cast<size_t>(found);
    } else if (out.offsets) {
      if ((!out.splits && length != 1) || !fits(first, 2, out.offsets_room)) return false;
      const size_t used = static_cast<size_t>(out.offsets[first]);
      if (!fits(used, run.size(), out.values_room)) return false;
      if (run.size() <= 16 && fits(used, 16, out.values_room))
        std::memcpy(out.values + used, run.at, 16);  // the rest is overwritten by the next string, or never looked at
      else
        std::memcpy(out.values + used, run.at, run.size());
      out.offsets[first + 1] = static_cast<int64_t>(used + run.size());
    } else {
      if (length != 1 || !fits(first, 1, out.values_room / 2)) return false;
      const int64_t found[2] = {run.at - data_, static_cast<int64_t>(run.size())};
      std::memcpy(out.values + 16 * first, found, 16);
    }
    if (out.splits) out.splits[row_ + 1] = static_cast<int64_t>(first + count);
    return true;
  }

  bool whole(Span span) {
    stamp_++;
    faulty_ = false;
    positions_[0] = positions_[1] = 0;
    Reader r = reader_of(data_, span);
    while (!r.done()) {
      unsigned field, wire;
      if (!r.tag(field, wire)) return malformed(r);
      if (wire != kLen || (field != 1 && (field != 2 || !decoder_.sequence_))) {
        strange_ = true;
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
      if (index < 0) {
        strange_ = true;
        return true;
      }
      const Span* values = usual || entry_.usual ? &value : entry_.values.data();
      const size_t count = usual || entry_.usual ? 1 : entry_.values.size();
      Cell& cell = cells_[static_cast<size_t>(index)];
      cell.stamp = stamp_;
      cell.present = false;
      cell.fault = kOk;
      return list ? steps(static_cast<size_t>(index), values, count, cell) : feature(static_cast<size_t>(index), values, count, cell);
    }, &strange_);
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
    learned_ = true;
    plan_.clear();  // which points into the guesses
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
  static constexpr size_t kMostSteps = 256, kMostPlans = 64;
  std::vector<Step> plan_;
  std::vector<size_t> absent_;  // columns that records of the plan do not have
  size_t plans_ = 0;
  bool learned_ = false;
  bool strange_ = false, plan_strange_ = false;  // of this record, and of those that are as planned
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
