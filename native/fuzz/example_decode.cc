// The decoder: with ample room, and with almost none that grows when it is asked for, it comes to the same columns; those are sound, lie
// inside exactly the room given, and encoded and decoded again they are the same. With hostile outputs nothing but a crash would be wrong.
#include "example_decode.h"

#include <algorithm>

#include "example_encode.h"
#include "example_input.h"
#include "example_survey.h"
#include "protobuf.h"

using namespace tensorwire;

namespace {

// The buffers of a column; each is exactly as long as the kernel is told.
struct Room {
  Column column;
  size_t item;
  fuzz::Exact<uint8_t> values;
  fuzz::Exact<int64_t> offsets, splits, steps;
  fuzz::Exact<uint8_t> present;

  Room(const Column& of, size_t rows, size_t spare, uint8_t fill)
      : column(of), item(of.places ? 16 : of.kind == 1 ? 1 : of.kind == 2 ? 4 : 8), values(item * count(rows, spare), fill),
        offsets(of.kind == 1 && !of.places ? count(rows, spare) + 1 : 0, fill), splits(of.length < 0 ? (of.list ? spare : rows) + 1 : 0, fill),
        steps(of.list ? rows + 1 : 0, fill), present(rows, fill) {
    if (offsets.size()) offsets[0] = 0;
    if (splits.size()) splits[0] = 0;
    if (steps.size()) steps[0] = 0;
  }

  size_t count(size_t rows, size_t spare) const { return spare + (column.list || column.length < 0 ? 0 : rows * static_cast<size_t>(column.length)); }

  Output output() {
    return {values.data(), column.places ? values.size() / 8 : values.size() / item, offsets.size() ? offsets.data() : nullptr, offsets.size(), splits.size() ? splits.data() : nullptr,
            splits.size(), steps.size() ? steps.data() : nullptr, steps.size(), present.data()};
  }

  size_t instances(size_t row) const { return column.list ? static_cast<size_t>(steps[row]) : row; }
  size_t number(size_t row) const {
    return column.length < 0 ? static_cast<size_t>(splits[instances(row)]) : instances(row) * static_cast<size_t>(column.length);
  }
  size_t bytes(size_t row) const { return offsets.size() ? static_cast<size_t>(offsets[number(row)]) : item * number(row); }

  template <class T>
  static void longer(fuzz::Exact<T>& array, size_t used, size_t more) {
    fuzz::Exact<T> next(used + more);
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
void check_bounds(const fuzz::Exact<T>& bounds, size_t count, size_t end) {
  CHECK(bounds[0] == 0 && static_cast<size_t>(bounds[count]) <= end);
  for (size_t i = 0; i < count; i++) CHECK(bounds[i] <= bounds[i + 1]);
}

struct Columns {
  std::vector<Room> rooms;
  Decoded result;
  bool strange = false;
  size_t data_size;

  // Decodes all, growing as often as asked; `rows` is also the number of messages.
  Columns(const fuzz::Examples& in, const ExampleDecoder& decoder, const fuzz::Exact<uint8_t>& data, size_t spare, uint8_t fill) : data_size(data.size()) {
    const size_t rows = in.starts.size();
    for (const Column& column : in.columns) rooms.emplace_back(column, rows, spare, fill);
    std::vector<size_t> grown(rooms.size(), SIZE_MAX);
    for (size_t row = 0;;) {
      std::vector<Output> outputs;
      for (Room& room : rooms) outputs.push_back(room.output());
      result = decoder.decode(data.data(), data.size(), in.starts.data() + row, in.sizes.data() + row, rows - row, row, rows, outputs.data(),
                              !in.is(fuzz::Examples::kFooters));
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
    bool equal = result.status == other.result.status && result.offset == other.result.offset && rows == other.result.done &&
                 result.column == other.result.column && result.found == other.result.found;
    for (size_t i = 0; i < rooms.size() && equal; i++) {
      const Room &a = rooms[i], &b = other.rooms[i];
      const auto prefix = [&](const auto& x, const auto& y, size_t n) { equal = equal && std::equal(x.data(), x.data() + n, y.data()); };
      prefix(a.present, b.present, rows);
      if (a.steps.size()) prefix(a.steps, b.steps, rows + 1);
      if (equal && a.splits.size()) prefix(a.splits, b.splits, a.instances(rows) + 1);
      if (equal && a.offsets.size()) prefix(a.offsets, b.offsets, a.number(rows) + 1);
      if (equal) prefix(a.values, b.values, a.bytes(rows));
    }
    return equal;
  }

  // What was decoded, as messages again.
  fuzz::Examples encoded(const fuzz::Examples& in) {
    std::vector<Input> inputs;
    for (Room& room : rooms) {
      const Output o = room.output();
      inputs.push_back({room.column.name, room.column.kind, room.column.list, room.column.length, o.values, o.values_room, o.offsets, o.offsets_room, o.splits,
                        o.splits_room, o.steps, o.steps_room, o.present, room.present.size()});
    }
    fuzz::Examples out(nullptr, 0);
    out.flags = in.flags & fuzz::Examples::kSequence;
    out.columns = in.columns;
    size_t room = 0;
    for (;;) {
      fuzz::Exact<uint8_t> bytes(room);
      fuzz::Exact<int64_t> ends(result.done);
      const Encoded e = encode_examples(inputs, in.is(fuzz::Examples::kSequence), 0, 1, result.done, false, bytes.data(), room, ends.data());
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
void hostile(const fuzz::Examples& in, const ExampleDecoder& decoder, const fuzz::Exact<uint8_t>& data) {
  const size_t rows = in.starts.size();
  std::vector<Room> rooms;
  std::vector<Output> outputs;
  for (const Column& column : in.columns) rooms.emplace_back(column, rows, data.size() % 16, 0);
  size_t at = 0;
  for (Room& room : rooms) {
    for (fuzz::Exact<int64_t>* numbers : {&room.offsets, &room.splits, &room.steps})
      for (size_t i = 0; i < numbers->size(); i++) {
        uint8_t byte = data.size() ? data[at++ % data.size()] : 0;
        // Small numbers, and both edges of 64 bits and of 64 bits over the size of an item.
        (*numbers)[i] = byte < 0x60 ? byte & 15 : static_cast<int64_t>(((byte & 0x80 ? uint64_t{1} << (60 + byte / 16 % 4) : 0)) + byte % 16 - 8);
      }
    outputs.push_back(room.output());
  }
  const Decoded d = decoder.decode(data.data(), data.size(), in.starts.data(), in.sizes.data(), rows, 0, rows, outputs.data(), true);
  CHECK(d.done <= rows);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* raw, size_t raw_size) {
  const fuzz::Examples in(raw, raw_size);
  const ExampleDecoder decoder(in.columns, in.is(fuzz::Examples::kSequence));
  const fuzz::Exact<uint8_t> data(in.bytes.data(), in.bytes.size());  // exact: what is read ahead stays inside
  if (in.is(fuzz::Examples::kHostile)) {
    hostile(in, decoder, data);
    return 0;
  }
  Columns ample(in, decoder, data, data.size() + 16, 0xa5);
  for (const auto& [spare, fill] : {std::pair<size_t, uint8_t>{0, 0x5a}, {data.size() % 32, 0}}) {
    const Columns other(in, decoder, data, spare, fill);
    CHECK(ample.same(other) && ample.strange == other.strange);
  }

  // The survey looks at everything: what it lets pass, the decoder can only refuse for its columns.
  ExampleSurvey survey(1 << 20);
  const Surveyed s = survey.add(data.data(), data.size(), in.starts.data(), in.sizes.data(), in.starts.size(), !in.is(fuzz::Examples::kFooters));
  CHECK(s.status != kOk || ample.result.status == kOk || ample.result.status == kWrongKind || ample.result.status == kWrongLength);
  CHECK(s.done <= ample.result.done || ample.result.status == kWrongKind || ample.result.status == kWrongLength);

  if (s.status == kOk && ample.result.status == kOk)
    for (const auto& [key, feature] : survey.result().features) CHECK(ample.strange || decoder.find(key.second, key.first) >= 0);

  // Places are those of this buffer, and no column to encode.
  const bool all = std::none_of(in.columns.begin(), in.columns.end(), [](const Column& column) { return column.places; });
  if (ample.result.status == kOk && all) {
    const fuzz::Examples again = ample.encoded(in);
    const fuzz::Exact<uint8_t> bytes(again.bytes.data(), again.bytes.size());
    const Columns other(again, decoder, bytes, 3, 0x77);
    CHECK(ample.same(other) && !other.strange);
  }
  return 0;
}
