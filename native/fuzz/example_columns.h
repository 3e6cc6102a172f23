// Columns as the targets decode them: their buffers, what must hold of them, and messages made of
// them again.
#pragma once
#include <algorithm>
#include <string>
#include <vector>

#include "example_decode.h"
#include "example_encode.h"
#include "example_input.h"
#include "protobuf.h"

namespace fuzz {

using tensorwire::Column;
using tensorwire::Decoded;
using tensorwire::Encoded;
using tensorwire::ExampleDecoder;
using tensorwire::Input;
using tensorwire::kNoSpace;
using tensorwire::kOk;
using tensorwire::Output;

// The buffers of a column; each is exactly as long as the kernel is told.
struct Room {
  Column column;
  size_t item;
  Exact<uint8_t> values;
  Exact<int64_t> offsets, splits, steps;
  Exact<uint8_t> present;

  Room(const Column& of, size_t rows, size_t spare, uint8_t fill)
      : column(of),
        item(of.places      ? 16
             : of.kind == 1 ? 1
             : of.kind == 2 ? 4
                            : 8),
        values(item * count(rows, spare), fill),
        offsets(of.kind == 1 && !of.places ? count(rows, spare) + 1 : 0, fill),
        splits(of.length < 0 ? (of.list ? spare : rows) + 1 : 0, fill),
        steps(of.list ? rows + 1 : 0, fill),
        present(rows, fill) {
    if (offsets.size()) offsets[0] = 0;
    if (splits.size()) splits[0] = 0;
    if (steps.size()) steps[0] = 0;
  }

  size_t count(size_t rows, size_t spare) const {
    const bool any = column.list || column.length < 0;
    return spare + (any ? 0 : rows * static_cast<size_t>(column.length));
  }

  Output output() {
    const auto start = [](Exact<int64_t>& of) { return of.size() ? of.data() : nullptr; };
    return {values.data(),  values.size() / (column.places ? 8 : item),
            start(offsets), offsets.size(),
            start(splits),  splits.size(),
            start(steps),   steps.size(),
            present.data()};
  }

  size_t instances(size_t row) const { return column.list ? static_cast<size_t>(steps[row]) : row; }
  size_t number(size_t row) const {
    const size_t instance = instances(row);
    return column.length < 0 ? static_cast<size_t>(splits[instance])
                             : instance * static_cast<size_t>(column.length);
  }
  size_t bytes(size_t row) const {
    return offsets.size() ? static_cast<size_t>(offsets[number(row)]) : item * number(row);
  }

  template <class T>
  static void longer(Exact<T>& array, size_t used, size_t more) {
    Exact<T> next(used + more);
    std::memcpy(next.data(), array.data(), used * sizeof(T));
    array = std::move(next);
  }

  // As much more as a message of `size` bytes is promised to need.
  void grow(size_t row, size_t size) {
    const size_t instance = instances(row), value = number(row), used = bytes(row);
    longer(values, used, item * size);
    if (offsets.size()) longer(offsets, value + 1, size);
    if (column.list && splits.size()) longer(splits, instance + 1, size);
  }
};

template <class T>
void check_bounds(const Exact<T>& bounds, size_t count, size_t end) {
  CHECK(bounds[0] == 0 && static_cast<size_t>(bounds[count]) <= end);
  for (size_t i = 0; i < count; i++) CHECK(bounds[i] <= bounds[i + 1]);
}

struct Columns {
  std::vector<Room> rooms;
  Decoded result;
  bool strange = false;
  size_t data_size;

  // Decodes all, growing as often as asked; `rows` is also the number of messages.
  Columns(const Examples& in, const ExampleDecoder& decoder, const Exact<uint8_t>& data,
          size_t spare, uint8_t fill)
      : data_size(data.size()) {
    const size_t rows = in.starts.size();
    for (const Column& column : in.columns) rooms.emplace_back(column, rows, spare, fill);
    std::vector<size_t> grown(rooms.size(), SIZE_MAX);
    for (size_t row = 0;;) {
      std::vector<Output> outputs;
      for (Room& room : rooms) outputs.push_back(room.output());
      const int64_t *starts = in.starts.data() + row, *sizes = in.sizes.data() + row;
      result = decoder.decode(data.data(), data.size(), starts, sizes, rows - row, row, rows,
                              outputs.data(), !in.is(Examples::kFooters));
      row += result.done;
      result.done = row;
      strange |= result.strange;
      CHECK(row <= rows && result.offset <= data.size());
      if (result.status != kNoSpace) break;
      CHECK(row < rows && result.column < rooms.size());
      CHECK(grown[result.column] != row);  // what was promised to be enough is enough
      grown[result.column] = row;
      rooms[result.column].grow(row, static_cast<size_t>(in.sizes[row]));
    }
    CHECK((result.status == kOk) == (result.done == rows));
    for (const Room& room : rooms) check(room);
  }

  void check(const Room& room) const {
    const size_t rows = result.done;
    for (size_t i = 0; i < rows; i++) CHECK(room.present[i] <= 1);
    if (room.column.list) check_bounds(room.steps, rows, SIZE_MAX);
    const size_t instances = room.instances(rows);
    if (room.splits.size()) check_bounds(room.splits, instances, SIZE_MAX);
    if (room.offsets.size()) check_bounds(room.offsets, room.number(rows), room.values.size());
    CHECK(room.bytes(rows) <= room.values.size());
    for (size_t i = 0; room.column.places && i < room.number(rows); i++) {
      uint64_t place[2];
      std::memcpy(place, room.values.data() + 16 * i, 16);
      CHECK(place[0] <= data_size && place[1] <= data_size - place[0]);
    }
  }

  bool same(const Columns& other) const {
    const size_t rows = result.done;
    bool equal = result.status == other.result.status && result.offset == other.result.offset &&
                 rows == other.result.done && result.column == other.result.column &&
                 result.found == other.result.found;
    for (size_t i = 0; i < rooms.size() && equal; i++) {
      const Room &a = rooms[i], &b = other.rooms[i];
      const auto prefix = [&](const auto& x, const auto& y, size_t n) {
        equal = equal && std::equal(x.data(), x.data() + n, y.data());
      };
      prefix(a.present, b.present, rows);
      if (a.steps.size()) prefix(a.steps, b.steps, rows + 1);
      if (equal && a.splits.size()) prefix(a.splits, b.splits, a.instances(rows) + 1);
      if (equal && a.offsets.size()) prefix(a.offsets, b.offsets, a.number(rows) + 1);
      if (equal) prefix(a.values, b.values, a.bytes(rows));
    }
    return equal;
  }

  // What was decoded, as messages again.
  Examples encoded(const Examples& in) {
    std::vector<Input> inputs;
    for (Room& room : rooms) {
      const Output o = room.output();
      const Column& column = room.column;
      inputs.push_back({column.name, column.kind, column.list, column.length, o.values,
                        o.values_room, o.offsets, o.offsets_room, o.splits, o.splits_room, o.steps,
                        o.steps_room, o.present, room.present.size()});
    }
    Examples out(nullptr, 0);
    out.flags = in.flags & Examples::kSequence;
    out.columns = in.columns;
    size_t room = 0;
    for (;;) {
      Exact<uint8_t> bytes(room);
      Exact<int64_t> ends(result.done);
      const bool sequence = in.is(Examples::kSequence);
      const Encoded e = encode_examples(inputs, sequence, 0, 1, result.done, false, bytes.data(),
                                        room, ends.data());
      if (e.status == kNoSpace) {
        CHECK(e.used + e.wanted > room);
        room = e.used + e.wanted;
        continue;
      }
      CHECK(e.status == kOk && e.done == result.done && e.used == room);
      out.bytes.assign(bytes.data(), bytes.data() + room);
      for (size_t i = 0; i < e.done; i++) {
        out.starts.push_back(i ? ends[i - 1] : 0);
        out.sizes.push_back(ends[i] - out.starts.back());
      }
      return out;
    }
  }
};

// The numbers that say where to go on are the input's own bytes.
inline void hostile(const Examples& in, const ExampleDecoder& decoder, const Exact<uint8_t>& data) {
  const size_t rows = in.starts.size();
  std::vector<Room> rooms;
  std::vector<Output> outputs;
  for (const Column& column : in.columns) rooms.emplace_back(column, rows, data.size() % 16, 0);
  size_t at = 0;
  for (Room& room : rooms) {
    for (Exact<int64_t>* numbers : {&room.offsets, &room.splits, &room.steps})
      for (size_t i = 0; i < numbers->size(); i++) {
        uint8_t byte = data.size() ? data[at++ % data.size()] : 0;
        // Small numbers, and both edges of 64 bits and of 64 bits over the size of an item.
        const uint64_t edge = byte & 0x80 ? uint64_t{1} << (60 + byte / 16 % 4) : 0;
        (*numbers)[i] = byte < 0x60 ? byte & 15 : static_cast<int64_t>(edge + byte % 16 - 8);
      }
    outputs.push_back(room.output());
  }
  const Decoded d = decoder.decode(data.data(), data.size(), in.starts.data(), in.sizes.data(),
                                   rows, 0, rows, outputs.data(), true);
  CHECK(d.done <= rows);
}

}  // namespace fuzz
